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

// rates are how many pods a second there were in the steady middle: by the proxies' exits, and by the pods' ends as the API server knows
// them. The first alone would favour who asks many proxies and lets the nodes' reports queue up.
type rates struct{ exits, ends float64 }

func (w *wave) rates(from time.Time) rates {
	return rates{steadyRate(w.exits(), from), steadyRate(w.finishes(), from)}
}

// bareStorm is a storm of so many pods without the operator.
func (r *rig) bareStorm(ctx context.Context, s size) (rates, error) {
	w, err := r.launch(ctx, "bare", s.bare(), r.nodes(s, 0))
	if err != nil {
		return rates{}, err
	}
	if err := sleep(ctx, settle); err != nil {
		return rates{}, err
	}
	r.oracle.Store(w)
	defer r.oracle.Store(nil)
	began, err := w.open(stormSpread(w.pods))
	if err != nil {
		return rates{}, err
	}
	defer r.profiled(ctx, w.name)()
	if err := r.quitAll(ctx, w); err != nil {
		return rates{}, err
	}
	last, err := w.awaitReaped(ctx)
	if err != nil {
		return rates{}, err
	}
	if _, err := w.awaitComplete(ctx); err != nil {
		return rates{}, err
	}
	reached := w.rates(began)
	r.say("the bare loop: %.1f exits/s, %.1f ends/s (%d pods, last exit after %.1f s)", reached.exits, reached.ends, w.pods, last.Sub(began).Seconds())
	return reached, nil
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
