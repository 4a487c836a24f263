// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves the gates, and what a Pod's view tells of its times.

package simnode_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/test/simnode"
)

func TestGateHoldsContainersUntilItOpens(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	gated := map[string]simnode.ContainerScript{"app": {Gate: t.Name(), Run: duration(time.Millisecond)}}
	simnode.Script{Containers: gated}.Annotate(&spec)
	namespace := newNamespace(t)
	job := createJob(t, namespace, spec)
	pod := waitPod(t, job, "that runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	time.Sleep(500 * time.Millisecond)
	if s := view(t, pod); !s.AppsFinishedAt.IsZero() || !s.Reported || s.Phase != corev1.PodRunning {
		t.Errorf("want a running app, all reported, before the gate opens, got %+v", s)
	}
	if n := fleet.OpenGate("another", 0); n != 0 {
		t.Errorf("another gate let %d containers go", n)
	}
	if n := fleet.OpenGate(t.Name(), 0); n != 1 {
		t.Errorf("want 1 container let go, got %d", n)
	}
	waitPod(t, job, "that is stuck", stuck)
	if got := ask(t, namespace, pod.Name, "POST", 15020, noWebSocket == ""); got.status != 200 {
		t.Fatalf("want 200, got %+v", got)
	}
	waitJob(t, job, batchv1.JobComplete)
	s := view(t, pod)
	if s.AppsFinishedAt.IsZero() || !s.AppsReportedAt.After(s.AppsFinishedAt) || !s.FirstQuitAt.After(s.AppsReportedAt) ||
		!s.ProxyExited || !s.ProxyExitedAt.After(s.FirstQuitAt) || !s.FinishedAt.After(s.ProxyExitedAt) {
		t.Errorf("want the app's end, its report, the quit, the proxy's end and the Pod's in this order, got %+v", s)
	}
	if s.Phase != corev1.PodSucceeded || s.QuitsPremature != 0 {
		t.Errorf("want Succeeded and no premature quit, got %+v", s)
	}

	again := createJob(t, namespace, spec)
	waitPod(t, again, "that is stuck, for the gate stays open", stuck)
}

// view is a Pod as Each shows it.
func view(t *testing.T, pod *corev1.Pod) (found simnode.PodState) {
	t.Helper()
	fleet.Each(func(namespace, name string, s simnode.PodState) {
		if namespace == pod.Namespace && name == pod.Name {
			found = s
		}
	})
	return found
}
