// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file watches, and notes when what became of pods and Jobs was first seen.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

// podSeen is what was seen of a pod, and when.
type podSeen struct {
	key               types.NamespacedName
	job               string
	appEnded          time.Time
	finished          time.Time
	app, proxy        string // IDs of the containers
	proxyExit         int32
	proxyEnded, gone  bool
	phase             corev1.PodPhase
	proxyRestartCount int32
}

type jobSeen struct {
	complete time.Time
	failed   string
}

type watcher struct {
	mu   sync.Mutex
	pods map[types.UID]*podSeen
	jobs map[types.NamespacedName]*jobSeen
}

// watch watches everything with the bench's label until the context ends.
func watch(ctx context.Context, clientset kubernetes.Interface) (*watcher, error) {
	w := &watcher{pods: map[types.UID]*podSeen{}, jobs: map[types.NamespacedName]*jobSeen{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label }))
	for informer, saw := range map[cache.SharedIndexInformer]func(any, bool){
		factory.Core().V1().Pods().Informer():  w.pod,
		factory.Batch().V1().Jobs().Informer(): w.job,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { saw(o, false) },
			UpdateFunc: func(_, o any) { saw(o, false) },
			DeleteFunc: func(o any) { saw(o, true) },
		}); err != nil {
			return nil, err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return w, ctx.Err()
}

func (w *watcher) pod(o any, gone bool) {
	now := time.Now()
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.pods[pod.UID]
	if seen == nil {
		seen = &podSeen{key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, job: pod.Labels[batchv1.JobNameLabel]}
		w.pods[pod.UID] = seen
	}
	seen.gone, seen.phase = gone, pod.Status.Phase
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch c.Name {
		case "app":
			seen.app = idOf(c)
			if c.State.Terminated != nil && seen.appEnded.IsZero() {
				seen.appEnded = now
			}
		case workload.ProxyName:
			seen.proxy, seen.proxyRestartCount = idOf(c), c.RestartCount
			if end := c.State.Terminated; end != nil {
				seen.proxyEnded, seen.proxyExit = true, end.ExitCode
			}
		}
	}
	if seen.finished.IsZero() && (seen.phase == corev1.PodSucceeded || seen.phase == corev1.PodFailed) {
		seen.finished = now
	}
}

func (w *watcher) job(o any, _ bool) {
	now := time.Now()
	job, ok := o.(*batchv1.Job)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
	seen := w.jobs[key]
	if seen == nil {
		seen = &jobSeen{}
		w.jobs[key] = seen
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete && seen.complete.IsZero():
			seen.complete = now
		case c.Type == batchv1.JobFailed:
			seen.failed = c.Reason
		}
	}
}

// await waits until a Job is complete, and returns when that was seen and what was seen of its pods.
func (w *watcher) await(ctx context.Context, key types.NamespacedName, within time.Duration) (time.Time, []podSeen, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		w.mu.Lock()
		var seen jobSeen
		if known := w.jobs[key]; known != nil {
			seen = *known
		}
		pods := w.podsOf(key)
		w.mu.Unlock()
		switch {
		case seen.failed != "":
			return time.Time{}, nil, fmt.Errorf("the Job %s failed: %s", key, seen.failed)
		case !seen.complete.IsZero():
			return seen.complete, pods, check(key, pods)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, nil, fmt.Errorf("the Job %s has not completed: %w", key, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// podsOf needs the lock.
func (w *watcher) podsOf(key types.NamespacedName) []podSeen {
	var pods []podSeen
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if seen := w.pods[uid]; seen.job == key.Name && seen.key.Namespace == key.Namespace {
			pods = append(pods, *seen)
		}
	}
	return pods
}

// check tells whether a complete Job's pods ended as they should.
func check(key types.NamespacedName, pods []podSeen) error {
	for _, pod := range pods {
		if pod.appEnded.IsZero() || pod.phase != corev1.PodSucceeded {
			return fmt.Errorf("the Job %s is complete, its pod %s is %s", key, pod.key.Name, pod.phase)
		}
		if pod.proxy != "" && (!pod.proxyEnded || pod.proxyExit != 0 || pod.proxyRestartCount > 0) {
			return fmt.Errorf("the proxy of %s ended badly: exit code %d, %d restarts", pod.key, pod.proxyExit, pod.proxyRestartCount)
		}
	}
	return nil
}

// awaitGone waits until every pod that was seen is gone.
func (w *watcher) awaitGone(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		left := 0
		w.mu.Lock()
		for _, pod := range w.pods {
			if !pod.gone {
				left++
			}
		}
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods are left of a round: %w", left, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// idOf is a container's ID as the runtime knows it.
func idOf(c corev1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}
