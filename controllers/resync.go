// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The resync: now and then every unfinished pod is listed from the API server itself, past the cache. A watch event that got
// lost then costs one interval, and not a Job.

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/jobmesh/jobmesh/internal/podcache"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

const (
	// DefaultResyncInterval is how often the cache is checked against the API server.
	DefaultResyncInterval = 2 * time.Minute
	// pageSize bounds how many whole pods are in memory at once during a resync.
	pageSize = 50
	// resyncBound bounds one resync, so that a hung list does not end them all.
	resyncBound = time.Minute
	// quietNamespace is how long a namespace's series outlive its last pod of a Job and its last policy.
	quietNamespace = time.Hour
)

// Resync heals what the cache missed. It is a manager.Runnable that runs on the leader.
type Resync struct {
	Pods     *PodReconciler
	Interval time.Duration
	// Namespaces are the only ones to look at; none means all.
	Namespaces []string

	lastSeen map[string]time.Time
}

// Start runs until the context ends. The first round waits for an interval: at a start the ledger is empty, and every pod would
// look lost.
func (s *Resync) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(s.Interval):
	}
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, resyncBound)
		defer cancel()
		if err := s.run(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to compare the cache with the API server")
		}
	}, s.Interval, 0.1, true)
	return nil
}

func (s *Resync) run(ctx context.Context) error {
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{corev1.NamespaceAll}
	}
	known := s.Pods.Ledger.Keys() // before the list, so that a pod born during it does not look lost
	seen := sets.New[types.NamespacedName]()
	for _, namespace := range namespaces {
		if err := s.check(ctx, namespace, seen); err != nil {
			return err
		}
	}
	for _, key := range known {
		if !seen.Has(key) {
			s.suspect(key)
		}
	}
	s.dropQuietNamespaces()
	return nil
}

// check lists the unfinished pods of a namespace page by page.
func (s *Resync) check(ctx context.Context, namespace string, seen sets.Set[types.NamespacedName]) error {
	for next := ""; ; {
		var page corev1.PodList // a new one each time: decoding into a used one keeps what the next page does not mention
		err := s.Pods.Live.List(ctx, &page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next),
			client.MatchingFieldsSelector{Selector: podcache.Selector()})
		if err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		for i := range page.Items {
			if verdict.JobOf(&page.Items[i]) == nil {
				continue
			}
			seen.Insert(client.ObjectKeyFromObject(&page.Items[i]))
			if err := s.compare(ctx, &page.Items[i]); err != nil {
				return err
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// compare has the pod looked at again, live, where the controller does not know it, or is mistaken about whether it is stuck.
func (s *Resync) compare(ctx context.Context, pod *corev1.Pod) error {
	known, ok := s.Pods.Ledger.Recall(pod)
	in, err := s.Pods.gather(ctx, pod)
	if err != nil {
		return err
	}
	if decision := verdict.Decide(in); !ok || decision.IsStuck() != known.Stuck {
		s.suspect(client.ObjectKeyFromObject(pod))
	}
	return nil
}

func (s *Resync) suspect(key types.NamespacedName) {
	s.Pods.suspects.Store(key, struct{}{})
	s.Pods.wakeup.add(reconcile.Request{NamespacedName: key})
}

// dropQuietNamespaces ends the series of namespaces that were deleted, or hold nothing of interest any more. JobMesh may not read
// namespaces, so it goes by what it saw in them.
func (s *Resync) dropQuietNamespaces() {
	if s.lastSeen == nil {
		s.lastSeen = map[string]time.Time{}
	}
	now := s.Pods.Clock.Now()
	for _, key := range s.Pods.Ledger.Keys() {
		s.lastSeen[key.Namespace] = now
	}
	s.Pods.Ledger.EachPolicy(func(policy types.NamespacedName, _ string) { s.lastSeen[policy.Namespace] = now })
	for namespace, seen := range s.lastSeen {
		if now.Sub(seen) > quietNamespace {
			s.Pods.Metrics.NamespaceGone(namespace)
			s.Pods.rankings.forget(namespace)
			delete(s.lastSeen, namespace)
		}
	}
}
