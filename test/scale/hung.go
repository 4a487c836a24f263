// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The hung node: stuck pods on a node whose port-forward never answers, beside healthy ones on other nodes.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jobmesh/jobmesh/test/simnode"
)

const hungAbout = `One node accepts every connection for a port-forward and never answers. Its stuck pods are there in every other round; the apps of
the healthy pods on the other nodes end evenly, at a tenth of the rate that a storm reaches, so that the quantiles tell of the hung node and not of a
queue of the healthy pods' own making. The rounds alternate, so that a machine that becomes slower meets both kinds.`

const (
	// healthyRate is how many healthy apps end in a second: about a tenth of what a storm on two cores reaches.
	healthyRate = 25
	hungRounds  = 2
)

func hung(ctx context.Context, r *rig, s size) ([]figure, error) {
	if _, err := r.startIdleOperator(ctx); err != nil {
		return nil, err
	}
	node := r.fleet.Node(s.Nodes - 1)
	var alone, beside, recoveries []float64
	var asked, premature int64
	for range hungRounds {
		w, err := r.healthyRound(ctx, s)
		if err != nil {
			return nil, err
		}
		fromEnd, _ := waits(w.all())
		alone = append(alone, fromEnd...)

		stuck, err := r.launch(ctx, "hung", s.hung(), []string{node.Name()})
		if err != nil {
			return nil, err
		}
		node.SetFault(simnode.FaultHangBeforeUpgrade)
		if _, err := stuck.open(time.Second); err != nil {
			return nil, err
		}
		if err := stuck.awaitStuck(ctx); err != nil {
			return nil, err
		}
		before := r.fleet.Counters()
		if w, err = r.healthyRound(ctx, s); err != nil {
			return nil, err
		}
		asked += r.fleet.Counters().PortForwards - before.PortForwards - int64(w.pods)
		if reaped := stuck.count(func(p pod) bool { return p.ProxyExited }); reaped > 0 {
			return nil, fmt.Errorf("%d pods of the hung node were reaped: it did not hang", reaped)
		}
		fromEnd, _ = waits(w.all())
		beside = append(beside, fromEnd...)

		ended := time.Now()
		node.SetFault(simnode.FaultNone)
		last, err := stuck.awaitReaped(ctx)
		if err != nil {
			return nil, err
		}
		recoveries = append(recoveries, last.Sub(ended).Seconds())
		if _, err := stuck.awaitComplete(ctx); err != nil {
			return nil, err
		}
	}
	premature = r.fleet.Counters().QuitsPremature
	every := func(v float64) float64 { return v }
	alone, beside = sortedBy(alone, every), sortedBy(beside, every)
	p99Alone, p99Beside := quantile(alone, .99), quantile(beside, .99)
	return []figure{
		{"p99Alone", fmt.Sprintf("%d healthy pods: app's end → quit, 99th percentile, no node hangs", len(alone)), p99Alone, "s"},
		{"p99Beside", fmt.Sprintf("%d healthy pods: the same beside %d stuck pods on a hung node", len(beside), s.hung()), p99Beside, "s"},
		{"growth", "growth of the 99th percentile", 100 * (p99Beside/p99Alone - 1), "%"},
		{"medianAlone", "median, no node hangs", quantile(alone, .5), "s"},
		{"medianBeside", "median, beside the hung node", quantile(beside, .5), "s"},
		{"worstAlone", "longest, no node hangs", quantile(alone, 1), "s"},
		{"worstBeside", "longest, beside the hung node", quantile(beside, 1), "s"},
		{"attempts", "attempts on the hung node", float64(asked), ""},
		{"recovery", "from the end of the hang to the last of its pods' proxies exiting, worse of the rounds", maxOf(recoveries, every), "s"},
		{"premature", "quits that arrived while an app container might still run", float64(premature), ""},
	}, nil
}

// healthyRound has the apps of healthy pods end evenly, on all nodes but the last, and waits until they are reaped.
func (r *rig) healthyRound(ctx context.Context, s size) (*wave, error) {
	w, err := r.launch(ctx, "healthy", s.healthy(), r.nodes(s, 1))
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, settle/2); err != nil {
		return nil, err
	}
	if _, err := w.open(time.Duration(w.pods) * time.Second / healthyRate); err != nil {
		return nil, err
	}
	if _, err = w.awaitReaped(ctx); err != nil {
		return nil, err
	}
	_, err = w.awaitComplete(ctx)
	return w, err
}
