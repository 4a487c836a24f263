// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the bare loop: what the operator's rate is held against. It is the operator's own quit client with its caps and
// its rights, called for one pod after another, by something that knows beforehand which pods are stuck and looks at nothing.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/internal/quit"
)

// bareLoop reaps a wave of so many pods without the operator, and returns the steady rate of proxies' exits, as steadyRate has it.
func (r *rig) bareLoop(ctx context.Context, s size) (float64, error) {
	w, err := r.launch(ctx, "bare", s.bare(), r.nodes(s, 0))
	if err != nil {
		return 0, err
	}
	if _, err := w.open(time.Second); err != nil {
		return 0, err
	}
	if err := w.awaitStuck(ctx); err != nil {
		return 0, err
	}
	pods, err := r.placesOf(ctx, w)
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, 2*time.Second); err != nil { // let the last writes settle
		return 0, err
	}
	began := time.Now()
	if err := r.quitAll(ctx, pods); err != nil {
		return 0, err
	}
	if _, err := w.awaitReaped(ctx); err != nil {
		return 0, err
	}
	rate := steadyRate(w.exits(), began)
	r.say("the bare loop: %.0f pods/s (%d pods in %.1f s)", rate, w.pods, time.Since(began).Seconds())
	_, err = w.awaitComplete(ctx)
	return rate, err
}

// placesOf lists the pods of a wave, with their nodes, in no order.
func (r *rig) placesOf(ctx context.Context, w *wave) ([]corev1.Pod, error) {
	var found []corev1.Pod
	for i := range teams {
		list, err := r.clients.CoreV1().Pods(team(i)).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			if w.owns(p.Name) {
				found = append(found, p)
			}
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	if len(found) != w.pods {
		return nil, fmt.Errorf("%d of %d pods are listed", len(found), w.pods)
	}
	return found, nil
}

// quitAll asks each proxy, within the operator's caps.
func (r *rig) quitAll(ctx context.Context, pods []corev1.Pod) error {
	const timeout, port = 10 * time.Second, 15020
	config := rest.CopyConfig(r.account)
	config.QPS = -1
	quitter, err := quit.NewClient(config)
	if err != nil {
		return err
	}
	caps := operator.Defaults()
	var mu sync.Mutex
	places := map[string]chan struct{}{}
	for _, p := range pods {
		if places[p.Spec.NodeName] == nil {
			places[p.Spec.NodeName] = make(chan struct{}, caps.MaxQuitsPerNode)
		}
	}
	outcomes := map[quit.Outcome]int{}
	err = inParallel(ctx, len(pods), caps.MaxConcurrentQuits, func(i int) error {
		place := places[pods[i].Spec.NodeName]
		place <- struct{}{}
		defer func() { <-place }()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		result := quitter.PortForward(ctx, quit.Target{Namespace: pods[i].Namespace, Pod: pods[i].Name, Port: port})
		mu.Lock()
		defer mu.Unlock()
		outcomes[result.Outcome]++
		if !result.Outcome.Asked() {
			return fmt.Errorf("the bare loop: %s: %w", result.Outcome, result.Err)
		}
		return nil
	})
	r.say("the bare loop's attempts: %v", outcomes)
	return err
}
