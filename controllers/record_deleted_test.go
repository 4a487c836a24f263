// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A deleted pod is not a reaped one.

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestADeletedPodIsNotReaped(t *testing.T) {
	deletedAt := func(asked time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: asked.Add(30 * time.Second)}
			p.DeletionGracePeriodSeconds = new(int64(30))
		}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"not deleted":                    {func(*corev1.Pod) {}, true},
		"deleted after the proxy exited": {deletedAt(build.FinishedAt.Add(time.Second)), true},
		"deleted before":                 {deletedAt(build.FinishedAt.Add(-time.Second)), false},
		"deleted at the same second":     {deletedAt(build.FinishedAt), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)).With(tc.change).Obj()
			if got := proxyTerminated(pod); got != tc.want {
				t.Errorf("proxyTerminated = %v, want %v", got, tc.want)
			}
		})
	}
}
