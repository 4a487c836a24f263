// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file runs the rounds.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/e2e/deploy"
	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

const (
	// patience bounds the wait for one Job, burstPatience that for one of many pods.
	patience      = 2 * time.Minute
	burstPatience = 10 * time.Minute
	// warmUp is the name of the round that does not count: caches are cold in it, and the operator may not lead yet.
	warmUp = 0
)

// bench is a run under way.
type bench struct {
	options
	kube       client.Client
	clientset  *kubernetes.Clientset
	watcher    *watcher
	namespaces map[string]string // by kind
	// alone are the pods of the Jobs that count and had one pod.
	alone map[types.NamespacedName]podSeen
	*results
}

// measure fills the results.
func measure(ctx context.Context, o options, r *results) error {
	if workload.AppImage == "" || workload.ProxyImage == "" || os.Getenv("KUBECONFIG") == "" {
		return errors.New("there is no cluster to measure on: run make bench")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	b := &bench{options: o, namespaces: map[string]string{}, alone: map[types.NamespacedName]podSeen{}, results: r}
	if b.clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if b.kube, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	r.Date, r.Load = time.Now().UTC(), load()
	if err := deploy.Operator(ctx, b.kube, "."); err != nil {
		return fmt.Errorf("installing the operator: %w", err)
	}
	if r.Machine, err = describeMachine(ctx, b.clientset); err != nil {
		return err
	}
	defer b.clean(context.WithoutCancel(ctx))
	for _, k := range kinds {
		if b.namespaces[k.key], err = k.prepare(ctx, b.kube); err != nil {
			return fmt.Errorf("preparing a namespace: %w", err)
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if b.watcher, err = watch(watching, b.clientset); err != nil {
		return err
	}
	return b.rounds(ctx)
}

// rounds runs all rounds. What was measured is saved after each, so that a run that is cut short was not for nothing: -render makes the
// documents of it.
func (b *bench) rounds(ctx context.Context) error {
	for round := range b.jobs + 1 {
		for i := range kinds {
			// Whoever comes first in a round, next to the clearing away of the round before, is another one each time.
			if err := b.single(ctx, kinds[(i+round)%len(kinds)], round); err != nil {
				return err
			}
		}
		if err := b.endRound(ctx); err != nil {
			return err
		}
		fmt.Printf("bench: round %d of %d, load %.1f:%s\n", round, b.jobs, load(), b.line(round))
	}
	bursting := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !k.burst })
	for round := range b.bursts {
		for i := range bursting {
			if err := b.burst(ctx, bursting[(i+round)%len(bursting)], round+1); err != nil {
				return err
			}
		}
		if err := b.endRound(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) endRound(ctx context.Context) error {
	if err := b.clear(ctx); err != nil {
		return err
	}
	if err := b.harvest(ctx); err != nil {
		return err
	}
	return b.save(b.data)
}

// line tells of a round on one line.
func (b *bench) line(round int) string {
	var text strings.Builder
	for _, k := range kinds {
		for _, s := range b.Singles {
			if s.Kind == k.key && s.Round == round {
				fmt.Fprintf(&text, "  %s %.2f s", k.key, s.JobFinished)
			}
		}
	}
	return text.String()
}

func (b *bench) single(ctx context.Context, k kind, round int) error {
	if k.key == loop {
		defer startReaper(ctx, b.namespaces[loop])()
	}
	key := types.NamespacedName{Namespace: b.namespaces[k.key], Name: fmt.Sprintf("single-%d", round)}
	created := time.Now()
	if err := b.kube.Create(ctx, k.job(key.Namespace, key.Name, 1)); err != nil {
		return err
	}
	complete, pods, err := b.watcher.await(ctx, key, patience)
	if err != nil || round == warmUp {
		return err
	}
	if len(pods) != 1 {
		return fmt.Errorf("the Job %s has %d pods, want 1", key, len(pods))
	}
	pod := pods[0]
	b.alone[pod.key] = pod
	b.Singles = append(b.Singles, single{
		Kind: k.key, Round: round, PodFinished: pod.finished.Sub(pod.appEnded).Seconds(),
		JobFinished: complete.Sub(pod.appEnded).Seconds(), Whole: complete.Sub(created).Seconds(),
	})
	return nil
}

func (b *bench) burst(ctx context.Context, k kind, round int) error {
	before, err := b.scrape(ctx)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: b.namespaces[k.key], Name: fmt.Sprintf("burst-%d", round)}
	created := time.Now()
	if err := b.kube.Create(ctx, k.job(key.Namespace, key.Name, int32(b.pods))); err != nil {
		return err
	}
	complete, pods, err := b.watcher.await(ctx, key, burstPatience)
	if err != nil {
		return err
	}
	if len(pods) != b.pods {
		return fmt.Errorf("the Job %s has %d pods, want %d", key, len(pods), b.pods)
	}
	byEnd := func(x, y podSeen) int { return x.appEnded.Compare(y.appEnded) }
	one := burst{
		Kind: k.key, Round: round, Pods: b.pods, Whole: complete.Sub(created).Seconds(),
		JobFinished: complete.Sub(slices.MinFunc(pods, byEnd).appEnded).Seconds(),
		AfterLast:   complete.Sub(slices.MaxFunc(pods, byEnd).appEnded).Seconds(),
	}
	if k.key == jobMesh {
		if err := b.account(ctx, before, &one); err != nil {
			return err
		}
	}
	b.Bursts = append(b.Bursts, one)
	fmt.Printf("bench: burst %d, load %.1f, %s: first app to Job %.2f s, last app to Job %.2f s, all %.2f s %v\n",
		round, load(), k.key, one.JobFinished, one.AfterLast, one.Whole, one.Attempts)
	return b.clear(ctx)
}

// clear deletes all Jobs and waits until nothing is left of them, so that no round has to carry another's weight.
func (b *bench) clear(ctx context.Context) error {
	for _, namespace := range b.namespaces {
		if err := b.clientset.BatchV1().Jobs(namespace).DeleteCollection(ctx,
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	return b.watcher.awaitGone(ctx, burstPatience)
}

// clean removes the namespaces, which matters where the cluster stays.
func (b *bench) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, namespace := range b.namespaces {
		if err := b.kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			fmt.Fprintln(os.Stderr, "bench: deleting a namespace:", err)
		}
	}
}
