// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file watches the operator from outside: what the kernel says of its process, and what it says itself at /metrics.

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// watchEvery is the time between two samples.
	watchEvery = 500 * time.Millisecond
	// settle is how long a fresh operator is left alone before it counts as idle.
	settle = 10 * time.Second
	// The bound on goroutines: so many for each attempt under way, and so many that are always there.
	goroutinesPerQuit, goroutinesAlways = 16, 150
)

// sample is what was seen at one moment. Memory is in MiB.
type sample struct {
	at         time.Time
	rss        float64
	sockets    int
	goroutines int
	inFlight   int
	reaped     int
	// nextGC is when the next collection begins: about twice what lives.
	nextGC float64
}

// excess is by how many goroutines the sample is above the bound; negative is below.
func (s sample) excess() int { return s.goroutines - goroutinesPerQuit*s.inFlight - goroutinesAlways }

// idle is the level at rest: medians of the last samples.
type idle struct {
	goroutines, sockets int
	rss                 float64
}

// watch samples until the process ends.
func (p *process) watch() {
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	for {
		select {
		case <-p.exited:
			return
		case <-ticks.C:
		}
		if s, err := p.sample(); err == nil {
			p.mu.Lock()
			p.samples = append(p.samples, s)
			p.mu.Unlock()
			p.keepGoroutines(s)
		}
	}
}

func (p *process) sample() (sample, error) {
	s := sample{at: time.Now()}
	var err error
	if s.rss, err = p.memory("VmRSS"); err != nil {
		return s, err
	}
	if s.sockets, err = p.sockets(); err != nil {
		return s, err
	}
	families, err := p.scrape()
	if err != nil {
		return s, err
	}
	s.goroutines = int(sum(families["go_goroutines"], nil))
	s.nextGC = sum(families["go_memstats_next_gc_bytes"], nil) / (1 << 20)
	s.reaped = int(sum(families["jobmesh_reaped_pods_total"], nil))
	if own, ok := families["jobmesh_quits_in_flight"]; ok {
		s.inFlight = int(sum(own, nil))
	} else {
		s.inFlight = int(sum(families["controller_runtime_active_workers"], map[string]string{"controller": "pod"}))
	}
	return s, nil
}

// memory reads one line of /proc/PID/status, in MiB.
func (p *process) memory(name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kilobytes / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc", name)
}

// processorTime is what the process has used so far, in seconds.
func (p *process) processorTime() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The command's name, in brackets, may hold spaces; the fields after it begin with the third.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system, ticksPerSecond = 14 - 3, 15 - 3, 100
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/PID/stat: %q", text)
	}
	u, err := strconv.ParseFloat(string(fields[user]), 64)
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseFloat(string(fields[system]), 64)
	return (u + s) / ticksPerSecond, err
}

// sockets counts the process's open sockets, without the one that a scrape of its metrics uses.
func (p *process) sockets() (n int, err error) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n, err
}

func (p *process) scrape() (map[string]*dto.MetricFamily, error) {
	text, err := get(context.Background(), p.metrics)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

// sum adds up the series of a family that have the given labels.
func sum(family *dto.MetricFamily, labels map[string]string) (total float64) {
	for _, m := range family.GetMetric() {
		matching := 0
		for _, pair := range m.GetLabel() {
			if value, ok := labels[pair.GetName()]; ok && value == pair.GetValue() {
				matching++
			}
		}
		if matching == len(labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total
}

// since returns the samples from a moment on.
func (p *process) since(t time.Time) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.samples, func(s sample) bool { return !s.at.Before(t) })
	if i < 0 {
		return nil
	}
	return slices.Clone(p.samples[i:])
}

// level is the present level: medians over the last five seconds.
func (p *process) level() idle {
	last := p.since(time.Now().Add(-5 * time.Second))
	return idle{
		goroutines: int(medianOf(last, func(s sample) float64 { return float64(s.goroutines) })),
		sockets:    int(medianOf(last, func(s sample) float64 { return float64(s.sockets) })),
		rss:        medianOf(last, func(s sample) float64 { return s.rss }),
	}
}

// returns waits until goroutines and sockets are back at the idle level, give or take tolerance, and tells how long that took. Where it
// takes longer than bound, it tells how far off they are.
func (r *rig) returns(ctx context.Context, to idle, since time.Time) (took time.Duration, off int, err error) {
	const tolerance, bound = 10, 60 * time.Second
	p := r.running
	for {
		if err := sleep(ctx, watchEvery); err != nil {
			return 0, 0, err
		}
		samples := p.since(time.Now().Add(-2 * time.Second))
		if len(samples) == 0 {
			continue
		}
		now := samples[len(samples)-1]
		off = max(distance(now.goroutines, to.goroutines), distance(now.sockets, to.sockets))
		took = now.at.Sub(since)
		if off <= tolerance || took > bound {
			r.say("the operator has %d goroutines and %d sockets, %.1f s after (idle: %d and %d)",
				now.goroutines, now.sockets, took.Seconds(), to.goroutines, to.sockets)
			return took, off, nil
		}
	}
}

func distance(a, b int) int { return max(a-b, b-a) }

// liveHeap is what lives on the operator's heap, in MiB: after a collection where its profile can be asked for, else as the
// runtime's own goal for the next collection tells.
func (p *process) liveHeap() (float64, error) {
	if p.profile == "" {
		s, err := p.sample()
		return s.nextGC / 2, err
	}
	text, err := get(context.Background(), p.profile)
	if err != nil {
		return 0, err
	}
	return heapAlloc(text)
}

// heapAlloc finds the bytes on the heap in a profile as text, and returns MiB.
func heapAlloc(profile string) (float64, error) {
	_, rest, found := strings.Cut(profile, "\n# HeapAlloc = ")
	if !found {
		return 0, fmt.Errorf("the profile of the heap does not say HeapAlloc")
	}
	value, _, _ := strings.Cut(rest, "\n")
	allocated, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return allocated / (1 << 20), err
}
