// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the bare loop: what the operator's rate is held against. It is the operator's own quit client with its caps and
// its rights, called for one pod after another by something that looks at nothing: the nodes tell it which pods are stuck.

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/internal/quit"
)

// bareStorm is a storm of so many pods without the operator. It returns the steady rate of the proxies' exits.
func (r *rig) bareStorm(ctx context.Context, s size) (float64, error) {
	w, err := r.launch(ctx, "bare", s.bare(), r.nodes(s, 0))
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	r.oracle.Store(w)
	defer r.oracle.Store(nil)
	began, err := w.open(stormSpread(w.pods))
	if err != nil {
		return 0, err
	}
	defer r.profiled(ctx, w.name)()
	if err := r.quitAll(ctx, w); err != nil {
		return 0, err
	}
	last, err := w.awaitReaped(ctx)
	if err != nil {
		return 0, err
	}
	rate := steadyRate(w.exits(), began)
	r.say("the bare loop: %.1f pods/s (%d pods in %.1f s)", rate, w.pods, last.Sub(began).Seconds())
	_, err = w.awaitComplete(ctx)
	return rate, err
}

// quitAll asks each proxy of a wave as soon as it is stuck, within the operator's caps.
func (r *rig) quitAll(ctx context.Context, w *wave) error {
	const timeout, port, tries = 10 * time.Second, 15020, 3
	config := rest.CopyConfig(r.account)
	config.QPS = -1
	quitter, err := quit.NewClient(config)
	if err != nil {
		return err
	}
	caps := operator.Defaults()
	var mu sync.Mutex
	nodes := map[string]chan struct{}{}
	outcomes := map[quit.Outcome]int{}
	err = inParallel(ctx, w.pods, caps.MaxConcurrentQuits, func(int) error {
		var at place
		select {
		case at = <-w.stuck:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		mu.Lock()
		if nodes[at.node] == nil {
			nodes[at.node] = make(chan struct{}, caps.MaxQuitsPerNode)
		}
		node := nodes[at.node]
		mu.Unlock()
		node <- struct{}{}
		defer func() { <-node }()
		var err error
		for range tries {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			result := quitter.PortForward(ctx, quit.Target{Namespace: at.namespace, Pod: at.pod, Port: port})
			cancel()
			mu.Lock()
			outcomes[result.Outcome]++
			mu.Unlock()
			if result.Outcome.Asked() {
				return nil
			}
			err = fmt.Errorf("the bare loop: %s: %w", result.Outcome, result.Err)
		}
		return err
	})
	r.say("the bare loop's attempts: %v", outcomes)
	return err
}
