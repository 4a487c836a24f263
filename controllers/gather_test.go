// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The Job's deadline: read once, live, only where a grace period makes it matter.

package controllers

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// jobWithDeadline is the Job of stuck("pod"), which fails so many seconds after its start; 0 for never.
func jobWithDeadline(seconds int64, uid types.UID) *batchv1.Job {
	job := build.MakeJob("pod-job", stuck("pod").Obj())
	job.UID = uid
	job.Status.StartTime = &metav1.Time{Time: build.Start}
	if seconds > 0 {
		job.Spec.ActiveDeadlineSeconds = &seconds
	}
	return job
}

const jobReads = "*v1.Job"

func TestTheJobsDeadlineCutsTheGracePeriod(t *testing.T) {
	cases := map[string]struct {
		job       *batchv1.Job
		wantAfter time.Duration // 0: asked at once
	}{
		"no deadline":              {jobWithDeadline(0, "job-uid"), 58 * time.Second},
		"one far away":             {jobWithDeadline(3600, "job-uid"), 58 * time.Second},
		"one that comes first":     {jobWithDeadline(100, "job-uid"), 8 * time.Second}, // 30 s before it
		"one that is close":        {jobWithDeadline(80, "job-uid"), 0},
		"the Job is gone":          {nil, 58 * time.Second},
		"a new Job of its name":    {jobWithDeadline(80, "another"), 58 * time.Second},
		"a Job that never started": {func() *batchv1.Job { j := jobWithDeadline(80, "job-uid"); j.Status.StartTime = nil; return j }(), 58 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, stuck("pod").Obj(), build.MakePolicy("reap").Grace(60).Obj())
			if tc.job != nil {
				if err := b.live.Create(t.Context(), tc.job); err != nil {
					t.Fatal(err)
				}
			}
			after := b.reconcile("pod").RequeueAfter
			if tc.wantAfter == 0 {
				b.wantAsks(1)
			} else if b.wantAsks(0); after != tc.wantAfter {
				t.Errorf("Looks again in %v, want %v", after, tc.wantAfter)
			}
			for range 3 {
				b.reconcile("pod")
			}
			if b.liveReads[jobReads] != 1 {
				t.Errorf("The Job was read %d times, want once", b.liveReads[jobReads])
			}
			b.clock.Step(tc.wantAfter)
			b.reconcile("pod")
			b.wantAsks(1)
			b.clock.Step(time.Minute)
			b.reconcile("pod")
			if b.liveReads[jobReads] != 1 {
				t.Errorf("In the end the Job was read %d times, want once", b.liveReads[jobReads])
			}
		})
	}
	t.Run("no grace period: no read", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.reconcile("pod")
		if b.liveReads[jobReads] != 0 {
			t.Error("The Job was read")
		}
	})
	t.Run("an error of the API server is tried again", func(t *testing.T) {
		b := newBench(t, stuck("pod").Obj(), build.MakePolicy("reap").Grace(60).Obj())
		b.liveErr = errServer
		if err := b.reconcileError(); !errors.Is(err, errServer) {
			t.Errorf("Got %v", err)
		}
		b.liveErr = nil
		if err := b.live.Create(t.Context(), jobWithDeadline(100, "job-uid")); err != nil {
			t.Fatal(err)
		}
		if after := b.reconcile("pod").RequeueAfter; after != 8*time.Second || b.recall().Reason != verdict.GracePeriod {
			t.Errorf("%s for %v", b.recall().Reason, after)
		}
	})
}
