// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The grace period, and the deadlines that cut it short.

package policy_test

import (
	"math"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestGraceLeft(t *testing.T) {
	finished := build.FinishedAt
	after := finished.Add
	const grace = 10 * time.Minute
	never := time.Time{}

	tests := map[string]struct {
		grace               time.Duration
		finished, seen, now time.Time
		deadlines           []time.Time
		want                time.Duration
	}{
		"no grace period":         {0, finished, finished, after(0), nil, 0},
		"a negative grace period": {-time.Minute, finished, finished, after(-time.Hour), nil, 0},
		"just finished":           {grace, finished, finished, after(0), nil, grace},
		"half over":               {grace, finished, finished, after(5 * time.Minute), nil, 5 * time.Minute},
		"a moment before the end": {grace, finished, finished, after(grace - 1), nil, 1},
		"over":                    {grace, finished, finished, after(grace), nil, 0},
		"long over":               {grace, finished, finished, after(time.Hour), nil, 0},
		"never seen before":       {grace, finished, never, after(time.Minute), nil, 9 * time.Minute},
		"by the operator's own clock it finished later": {grace, finished, after(time.Minute), after(2 * time.Minute), nil, 9 * time.Minute},

		"finished is unknown": {grace, never, finished, after(0), nil, 0},

		"the node's clock is ahead: no longer than grace from when it was seen": {
			grace, after(time.Hour), finished, after(0), nil, grace,
		},
		"the node's clock is ahead, later":     {grace, after(time.Hour), finished, after(9 * time.Minute), nil, time.Minute},
		"the node's clock is ahead, over":      {grace, after(time.Hour), finished, after(grace), nil, 0},
		"the node's clock is years ahead":      {grace, after(200 * 365 * 24 * time.Hour), finished, after(0), nil, grace},
		"the node's clock is behind":           {grace, after(-time.Hour), never, after(0), nil, 0},
		"the operator's clock was put back":    {grace, finished, finished, after(-time.Minute), nil, grace},
		"it was put back, never seen before":   {grace, finished, never, after(-time.Minute), nil, grace},
		"no deadline is known":                 {grace, finished, finished, after(0), []time.Time{never, never}, grace},
		"a deadline far off":                   {grace, finished, finished, after(0), []time.Time{after(time.Hour)}, grace},
		"a deadline right behind the margin":   {grace, finished, finished, after(0), []time.Time{after(grace + 30*time.Second)}, grace},
		"a deadline cuts it short":             {grace, finished, finished, after(0), []time.Time{after(5 * time.Minute)}, 4*time.Minute + 30*time.Second},
		"the earliest of several deadlines":    {grace, finished, finished, after(0), []time.Time{after(5 * time.Minute), never, after(3 * time.Minute)}, 150 * time.Second},
		"just more than the margin is left":    {grace, finished, finished, after(0), []time.Time{after(31 * time.Second)}, time.Second},
		"just the margin is left":              {grace, finished, finished, after(0), []time.Time{after(30 * time.Second)}, 0},
		"less than the margin is left":         {grace, finished, finished, after(0), []time.Time{after(time.Second)}, 0},
		"the deadline has passed":              {grace, finished, finished, after(0), []time.Time{after(-time.Hour)}, 0},
		"a deadline cuts a clock that's ahead": {grace, after(time.Hour), finished, after(0), []time.Time{after(5 * time.Minute)}, 4*time.Minute + 30*time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := policy.GraceLeft(tc.grace, tc.finished, tc.seen, tc.now, tc.deadlines...); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	never := time.Time{}
	start := &metav1.Time{Time: build.Start}
	tests := map[string]struct {
		seconds *int64
		start   *metav1.Time
		want    time.Time
	}{
		"no deadline":                  {nil, start, never},
		"not started":                  {new(int64(60)), nil, never},
		"neither":                      {nil, nil, never},
		"a minute":                     {new(int64(60)), start, build.Start.Add(time.Minute)},
		"none at all":                  {new(int64(0)), start, build.Start},
		"the most a pod may ask for":   {new(int64(math.MaxInt32)), start, build.Start.Add(math.MaxInt32 * time.Second)},
		"more than can be counted":     {new(int64(math.MaxInt64)), start, build.Start.Add(century)},
		"just more than a Duration":    {new(int64(math.MaxInt64/time.Second) + 1), start, build.Start.Add(century)},
		"negative":                     {new(int64(-60)), start, build.Start},
		"less than can be counted":     {new(int64(math.MinInt64)), start, build.Start},
		"negative beyond any Duration": {new(int64(-18_446_744_074)), start, build.Start},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: tc.seconds}, Status: corev1.PodStatus{StartTime: tc.start}}
			if got := policy.PodDeadline(pod); !got.Equal(tc.want) {
				t.Errorf("the pod's deadline is %s, want %s", got, tc.want)
			}
			job := &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: tc.seconds}, Status: batchv1.JobStatus{StartTime: tc.start}}
			if got := policy.JobDeadline(job); !got.Equal(tc.want) {
				t.Errorf("the Job's deadline is %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("no Job", func(t *testing.T) {
		if got := policy.JobDeadline(nil); !got.IsZero() {
			t.Errorf("got %s, want none", got)
		}
	})
}
