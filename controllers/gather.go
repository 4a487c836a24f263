// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Gathering: everything that a decision about a pod rests on.

package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

func (r *PodReconciler) gather(ctx context.Context, pod *corev1.Pod) (verdict.Input, error) {
	ranked, err := r.rankings.read(ctx, r.Cached, pod.Namespace)
	if err != nil {
		return verdict.Input{}, err
	}
	now := r.Clock.Now()
	in := verdict.Input{
		Pod:      pod,
		Settings: policy.SettingsOf(policy.Govern(pod, ranked), r.Defaults),
		Now:      now,
	}
	if known, ok := r.Ledger.Recall(pod); ok {
		in.History = historyOf(known, pod, now)
		if known.JobDeadline != nil {
			in.JobDeadline = *known.JobDeadline
		}
	}
	return in, nil
}

// historyOf is what is remembered of the proxy that runs now.
func historyOf(known ledger.Record, pod *corev1.Pod, now time.Time) verdict.History {
	if run := proxyRun(pod); known.ProxyRun != "" && run != "" && run != known.ProxyRun {
		return known.History.Restarted(now, rand.Float64())
	}
	return known.History
}

// proxyRun tells one run of the pod's proxy from the next.
func proxyRun(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == istio.ProxyContainer {
			return status.ContainerID
		}
	}
	return ""
}

// jobDeadline reads the deadline of the pod's Job, once per pod, and only where a grace period makes it matter. It is a live
// read: caching every Job of a cluster for this would cost far more.
func (r *PodReconciler) jobDeadline(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
	known, _ := r.Ledger.Recall(pod)
	if known.JobDeadline != nil {
		return *known.JobDeadline, nil
	}
	var job batchv1.Job
	owner := verdict.JobOf(pod)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, &job)
	switch {
	case apierrors.IsNotFound(err) || err == nil && job.UID != owner.UID:
		return time.Time{}, nil // the Job is gone, and its pods will follow
	case err != nil:
		return time.Time{}, fmt.Errorf("reading the Job: %w", err)
	}
	return policy.JobDeadline(&job), nil
}
