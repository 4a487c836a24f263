// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The restart: an operator that starts and finds very many stuck pods waiting, while others go on to finish.

package main

import (
	"context"
	"fmt"
	"time"
)

const restartAbout = `The operator is stopped, and the apps of all pods end. Then it starts and finds them stuck. While it works on this backlog the apps of other
pods on the same nodes end, evenly over the time that the backlog may take: they must not wait for the end of it.`

// backlogRate is how many pods a second the backlog is expected to shrink by; it only says over what time the late apps end.
const backlogRate = 500

func restart(ctx context.Context, r *rig, s size) ([]figure, error) {
	if _, err := r.startIdleOperator(ctx); err != nil {
		return nil, err
	}
	if err := r.stopOperator(); err != nil {
		return nil, err
	}
	backlog, err := r.launch(ctx, "backlog", s.Pods, r.nodes(s, 0))
	if err != nil {
		return nil, err
	}
	late, err := r.launch(ctx, "late", s.late(), r.nodes(s, 0))
	if err != nil {
		return nil, err
	}
	if _, err := backlog.open(stormSpread(backlog.pods)); err != nil {
		return nil, err
	}
	if err := backlog.awaitStuck(ctx); err != nil {
		return nil, err
	}
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}

	if err := r.startOperator(); err != nil {
		return nil, err
	}
	began := r.running.began
	err = r.eventually(ctx, "the first quit", func() (bool, error) { return r.fleet.Counters().QuitsReceived > 0, nil })
	if err != nil {
		return nil, err
	}
	if _, err := late.open(time.Duration(s.Pods) * time.Second / backlogRate); err != nil {
		return nil, err
	}
	defer r.profiled(ctx, backlog.name)()
	last, err := backlog.awaitReaped(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := late.awaitReaped(ctx); err != nil {
		return nil, err
	}
	lost, err := backlog.awaitComplete(ctx)
	if err != nil {
		return nil, err
	}
	lostLate, err := late.awaitComplete(ctx)
	if err != nil {
		return nil, err
	}
	peak, err := r.running.memory("VmHWM")
	if err != nil {
		return nil, err
	}
	processor, err := r.running.processorTime()
	if err != nil {
		return nil, err
	}

	first := last
	for _, p := range backlog.all() {
		if !p.FirstQuitAt.IsZero() && p.FirstQuitAt.Before(first) {
			first = p.FirstQuitAt
		}
	}
	fromEnd, fromReport := waits(late.all())
	whole := last.Sub(first).Seconds()
	during := late.count(func(p pod) bool { return p.AppsFinishedAt.Before(last) })
	return []figure{
		{"firstQuit", fmt.Sprintf("from the start of the process to the first quit, %d pods waiting", s.Pods), first.Sub(began).Seconds(), "s"},
		{"backlog", "from the first quit to the last proxy's exit of the backlog", whole, "s"},
		{"rate", "rate in the steady middle", steadyRate(backlog.exits(), began), "pods/s"},
		{"during", fmt.Sprintf("late apps that ended during that time, of %d", late.pods), float64(during), "pods"},
		{"waitMedian", "late pods: app's end → quit, median", quantile(fromEnd, .5), "s"},
		{"waitP95", "late pods: app's end → quit, 95th percentile", quantile(fromEnd, .95), "s"},
		{"waitOfBacklog", "the same against the backlog's whole time", quantile(fromEnd, .95) / whole, "×"},
		{"waitWorst", "late pods: app's end → quit, longest", quantile(fromEnd, 1), "s"},
		{"reportP95", "late pods: status with the app's end written → quit, 95th percentile", quantile(fromReport, .95), "s"},
		{"lost", "pods that did not succeed, or were missing from their Job's count", float64(lost + lostLate), "pods"},
		{"premature", "quits that arrived while an app container might still run", float64(r.fleet.Counters().QuitsPremature), ""},
		{"rssPeak", "resident memory, peak", peak, "MiB"},
		{"processor", "processor time of the operator", processor, "s"},
	}, nil
}
