// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file turns what was measured into figures.

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

type report struct {
	*results
	Rows      []row
	BurstRows []burstRow
	Attempt   spread // of pods that were alone
	InBurst   spread
	// Unanswered are those attempts of either whose stream ended without an answer.
	UnansweredAlone, UnansweredInBurst int
	Protocols                          string
	Parts                              []part
	Thresholds                         []threshold
	// Jobs and BurstRounds are how many of each kind there were.
	Jobs, BurstRounds int
}

// row is one kind's Jobs of one pod.
type row struct {
	kind
	Pod, Job, Whole                       spread
	JobOfNone, JobOfNative, JobOfDraining float64
	// Stages are the medians of where the time went, nil where nobody could tell.
	Stages []float64
}

// burstRow is one kind's bursts.
type burstRow struct {
	kind
	Job, AfterLast, Whole        spread
	OfNone, OfNative, OfDraining float64
	Pods, Reaped                 int // in all rounds
	Attempts, Refused, Other     int
}

// part is a line of where a millisecond goes.
type part struct {
	What, Note string
	Seconds    spread
}

// stages name the columns of row.Stages.
var stages = []struct{ title, color string }{
	{"kubelet notices the app's end", "#afb8c1"},
	{"the proxy still runs", "#0969da"},
	{"kubelet notices the pod's end", "#d0d7de"},
	{"Job controller", "#8c959f"},
}

func summarize(r *results, limits thresholds) *report {
	report := &report{results: r}
	for _, k := range kinds {
		of := func(s single) bool { return s.Kind == k.key }
		one := row{
			kind:  k,
			Pod:   pick(r.Singles, of, func(s single) float64 { return s.PodFinished }),
			Job:   pick(r.Singles, of, func(s single) float64 { return s.JobFinished }),
			Whole: pick(r.Singles, of, func(s single) float64 { return s.Whole }),
		}
		report.Jobs = max(report.Jobs, one.Job.N)
		here := func(t timeline) bool { return t.Kind == k.key }
		for _, figure := range []func(timeline) float64{
			func(t timeline) float64 { return t.Told }, func(t timeline) float64 { return t.ProxyExit },
			func(t timeline) float64 { return t.Finished }, func(t timeline) float64 { return t.Job },
		} {
			if s := pick(r.Timelines, here, figure); s.N > 0 {
				one.Stages = append(one.Stages, s.Median)
			}
		}
		report.Rows = append(report.Rows, one)
		if k.burst {
			report.addBurst(k)
		}
	}
	for i := range report.Rows {
		one := &report.Rows[i]
		one.JobOfNone = one.Job.Median / report.row(none).Job.Median
		one.JobOfNative = one.Job.Median / report.row(native).Job.Median
		one.JobOfDraining = one.Job.Median / report.row(draining).Job.Median
	}
	for i := range report.BurstRows {
		one := &report.BurstRows[i]
		one.OfNone = one.Job.Median / report.burstRow(none).Job.Median
		one.OfNative = one.Job.Median / report.burstRow(native).Job.Median
		one.OfDraining = one.Job.Median / report.burstRow(draining).Job.Median
	}
	report.attempts()
	report.judge(limits)
	return report
}

func (r *report) addBurst(k kind) {
	one := burstRow{kind: k}
	of := func(b burst) bool { return b.Kind == k.key }
	one.Job = pick(r.Bursts, of, func(b burst) float64 { return b.JobFinished })
	one.AfterLast = pick(r.Bursts, of, func(b burst) float64 { return b.AfterLast })
	one.Whole = pick(r.Bursts, of, func(b burst) float64 { return b.Whole })
	for _, b := range r.Bursts {
		if !of(b) {
			continue
		}
		one.Pods, one.Reaped = one.Pods+b.Pods, one.Reaped+b.Reaped
		for outcome, n := range b.Attempts {
			one.Attempts += n
			switch outcome {
			case "refused":
				one.Refused += n
			case "accepted", "unknown":
			default:
				one.Other += n
			}
		}
	}
	if one.Job.N > 0 {
		r.BurstRows, r.BurstRounds = append(r.BurstRows, one), max(r.BurstRounds, one.Job.N)
	}
}

// attempts looks at the operator's own account.
func (r *report) attempts() {
	alone := func(a attempt) bool { return !a.Burst }
	figure := func(f func(attempt) float64) spread { return pick(r.Attempts, alone, f) }
	r.Attempt = figure(func(a attempt) float64 { return a.Duration })
	r.InBurst = pick(r.Attempts, func(a attempt) bool { return a.Burst }, func(a attempt) float64 { return a.Duration })
	protocols := map[string]bool{}
	for _, a := range r.Attempts {
		protocols[a.Protocol] = true
		switch {
		case a.Outcome != "unknown":
		case a.Burst:
			r.UnansweredInBurst++
		default:
			r.UnansweredAlone++
		}
	}
	r.Protocols = strings.Join(slices.Sorted(maps.Keys(protocols)), " and ")

	ours := func(t timeline) bool { return t.Kind == jobMesh }
	stage := func(f func(timeline) float64) spread { return pick(r.Timelines, ours, f) }
	add := func(what, note string, s spread) {
		if s.N > 0 {
			r.Parts = append(r.Parts, part{what, note, s})
		}
	}
	add("kubelet", "notices that the app has ended, writes the pod's status", stage(func(t timeline) float64 { return t.Told }))
	add("**watch**", "from that write to the operator's looking at the pod, its work queue included", stage(func(t timeline) float64 { return t.Delivery }))
	add("**decision**", "gathers policy and history, applies the rules, records", figure(func(a attempt) float64 { return a.Decision }))
	add("**live read**", "reads the pod once more from the API server", figure(func(a attempt) float64 { return a.LiveRead }))
	add("**dial and TLS**", "a connection of its own to the API server, with a resumed session", figure(func(a attempt) float64 { return a.Connect }))
	add("**upgrade**", "the API server checks the rights and dials the kubelet, which asks containerd for a stream", figure(func(a attempt) float64 { return a.Upgrade }))
	add("**request**", "the runtime enters the pod's network and dials the agent; `POST /quitquitquit`; `200`", figure(func(a attempt) float64 { return a.Exchange }))
	add("**the rest**", "of the attempt: the second decision, on the pod as read live, and what lies between the parts",
		figure(func(a attempt) float64 { return max(0, a.Duration-a.LiveRead-a.Connect-a.Upgrade-a.Exchange) }))
	add("proxy", "ends Envoy and itself, after it has answered", stage(func(t timeline) float64 { return t.Quit }))
	add("kubelet", "notices that the proxy has ended, writes the pod's status", stage(func(t timeline) float64 { return t.Finished }))
	add("Job controller", "counts the pod, writes the Job's status", stage(func(t timeline) float64 { return t.Job }))
}

func (r *report) row(key string) *row {
	return &r.Rows[slices.IndexFunc(r.Rows, func(one row) bool { return one.key == key })]
}

// burstRow returns nil where there was no burst of that kind.
func (r *report) burstRow(key string) *burstRow {
	i := slices.IndexFunc(r.BurstRows, func(one burstRow) bool { return one.key == key })
	if i < 0 {
		return nil
	}
	return &r.BurstRows[i]
}

// text is the report for a terminal.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-25s %28s %28s %9s %9s %11s\n", "median (p95), s", "app's end → pod finished", "app's end → Job finished", "× none", "× native", "× draining")
	for _, one := range r.Rows {
		fmt.Fprintf(&b, "%-25s %20.2f (%5.2f) %20.2f (%5.2f) %9.2f %9.2f %11.2f\n", one.title, one.Pod.Median, one.Pod.P95, one.Job.Median, one.Job.P95,
			one.JobOfNone, one.JobOfNative, one.JobOfDraining)
	}
	for _, one := range r.BurstRows {
		fmt.Fprintf(&b, "burst: %-25s %.2f s (%.2f to %.2f), %.2f × native, %.2f × draining\n", one.title, one.Job.Median, one.Job.Min, one.Job.Max, one.OfNative, one.OfDraining)
	}
	fmt.Fprintf(&b, "attempt: median %.1f ms, p95 %.1f ms, %d\n\n", 1000*r.Attempt.Median, 1000*r.Attempt.P95, r.Attempt.N)
	for _, t := range r.Thresholds {
		fmt.Fprintf(&b, "%-7s %s: %s (%s)\n", map[bool]string{true: "met", false: "MISSED"}[t.Met], t.What, t.Got, t.Want)
	}
	return b.String()
}
