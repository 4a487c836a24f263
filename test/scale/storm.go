// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The storm: very many apps that end at once.

package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

const stormAbout = `Jobs whose pods all run, one Job on each node, made by the real Job controller. Then the apps end, a thousand a second. Before and after it, with
the operator stopped, a bare loop meets a smaller storm of the same density on the same set-up: it has the operator's own client, caps and rights, and the
nodes tell it which pod is stuck as soon as the API server knows, so that it watches, decides, reads and records nothing. For each quit
the operator makes a live read in addition, and another one to see how the pod ended. Both wait for the API server, which has the nodes' status writes to
take at the same time and shares two cores with everything else.`

// stormSpread is the time within which all apps of a storm end: 10 s for 10,000.
func stormSpread(pods int) time.Duration { return time.Duration(pods) * time.Millisecond }

func storm(ctx context.Context, r *rig, s size) ([]figure, error) {
	before, err := r.bareStorm(ctx, s)
	if err != nil {
		return nil, err
	}
	level, err := r.startIdleOperator(ctx)
	if err != nil {
		return nil, err
	}
	w, err := r.launch(ctx, "storm", s.Pods, r.nodes(s, 0))
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	waiting := r.running.level()
	r.say("the operator knows %d pods: %.1f MiB resident", s.Pods, waiting.rss)
	processorBefore, err := r.running.processorTime()
	if err != nil {
		return nil, err
	}

	opened, err := w.open(stormSpread(w.pods))
	if err != nil {
		return nil, err
	}
	defer r.profiled(ctx, w.name)()
	last, err := w.awaitReaped(ctx)
	if err != nil {
		return nil, err
	}
	back, off, err := r.returns(ctx, level, last)
	if err != nil {
		return nil, err
	}
	lost, err := w.awaitComplete(ctx)
	if err != nil {
		return nil, err
	}
	processor, err := r.running.processorTime()
	if err != nil {
		return nil, err
	}
	peak, err := r.running.memory("VmHWM")
	if err != nil {
		return nil, err
	}
	final, err := r.running.sample()
	if err != nil {
		return nil, err
	}
	samples := r.running.since(opened)
	if err := r.stopOperator(); err != nil {
		return nil, err
	}
	after, err := r.bareStorm(ctx, s)
	if err != nil {
		return nil, err
	}

	reapedOnce := w.count(func(p pod) bool { return p.Quits == 1 })
	rate, bare := w.rates(opened), rates{(before.exits + after.exits) / 2, (before.ends + after.ends) / 2}
	fromEnd, _ := waits(w.all())
	return []figure{
		{"reaped", "pods reaped, of " + fmt.Sprint(w.pods) + ": the proxy exited after a quit, and the operator's own count says so", float64(min(final.reaped, w.pods)), "pods"},
		{"lost", "pods that did not succeed, or were missing from their Job's count", float64(lost), "pods"},
		{"premature", "quits that arrived while an app container might still run", float64(r.fleet.Counters().QuitsPremature), ""},
		{"rate", "the operator's rate in the steady middle: pods whose end the API server knows", rate.ends, "pods/s"},
		{"bareRate", fmt.Sprintf("the bare loop's (%.1f before, %.1f after)", before.ends, after.ends), bare.ends, "pods/s"},
		{"ofBareLoop", "the operator's rate against the bare loop's", rate.ends / bare.ends, "×"},
		{"exitsOfBareLoop", fmt.Sprintf("the same by proxies' exits, which the nodes report later (%.1f and %.1f pods/s)", rate.exits, bare.exits), rate.exits / bare.exits, "×"},
		{"askedTwice", "pods that were asked more than once", float64(w.pods - reapedOnce), "pods"},
		{"duration", "from the first app's end to the last proxy's", last.Sub(opened).Seconds(), "s"},
		{"waitMedian", "app's end → quit, median", quantile(fromEnd, .5), "s"},
		{"waitWorst", "app's end → quit, longest", quantile(fromEnd, 1), "s"},
		{"rssIdle", "resident memory, idle", level.rss, "MiB"},
		{"rssWaiting", fmt.Sprintf("resident memory with %d running pods", w.pods), waiting.rss, "MiB"},
		{"rssPeak", "resident memory, peak", peak, "MiB"},
		{"processor", "processor time of the operator for the storm", processor - processorBefore, "s"},
		{"goroutinesPeak", "goroutines, peak", maxOf(samples, func(s sample) float64 { return float64(s.goroutines) }), ""},
		{"goroutinesExcess", fmt.Sprintf("goroutines above %d × attempts under way + %d, worst of %d samples", goroutinesPerQuit, goroutinesAlways, len(samples)),
			math.Max(0, maxOf(samples, func(s sample) float64 { return float64(s.excess()) })), ""},
		{"socketsPeak", "sockets, peak", maxOf(samples, func(s sample) float64 { return float64(s.sockets) }), ""},
		{"backToIdle", "from the last proxy's exit to goroutines and sockets at the idle level ± 10", back.Seconds(), "s"},
		{"offIdle", "goroutines or sockets off the idle level then", float64(off), ""},
	}, nil
}
