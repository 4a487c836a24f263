// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The grace period: how long a proxy outlives the app, and what cuts it short.

package policy

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// DeadlineMargin is what a grace period leaves before a deadline, for the quit itself, the kubelet and the Job controller.
const DeadlineMargin = 30 * time.Second

// PodDeadline is when the kubelet fails the pod: activeDeadlineSeconds after status.startTime. Zero where there is none.
func PodDeadline(pod *corev1.Pod) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime == nil {
		return time.Time{}
	}
	return deadline(pod.Status.StartTime.Time, *pod.Spec.ActiveDeadlineSeconds)
}

// JobDeadline is when the Job controller fails the Job: activeDeadlineSeconds after status.startTime. Zero where there is none.
func JobDeadline(job *batchv1.Job) time.Time {
	if job == nil || job.Spec.ActiveDeadlineSeconds == nil || job.Status.StartTime == nil {
		return time.Time{}
	}
	return deadline(job.Status.StartTime.Time, *job.Spec.ActiveDeadlineSeconds)
}

// maxDeadlineSeconds keeps a deadline within a time.Duration. The API allows more seconds than one can hold, and a file that
// never passed through it may hold negative ones.
const maxDeadlineSeconds = int64(100 * 365 * 24 * time.Hour / time.Second)

func deadline(start time.Time, secs int64) time.Time {
	return start.Add(time.Duration(max(0, min(secs, maxDeadlineSeconds))) * time.Second)
}

// GraceLeft is how long the proxy is still left to run at now, after the last app container finished: by the node's clock at
// finished, and by the caller's own at seen. Where seen is not zero it goes by that alone, because the time of day may jump, on
// either side, between the app's end and now. It is cut so that it ends DeadlineMargin before the earliest of the deadlines (zero
// ones aside), is over where finished is unknown (zero), and is never longer than grace.
func GraceLeft(grace time.Duration, finished, seen, now time.Time, deadlines ...time.Time) time.Duration {
	if grace <= 0 || finished.IsZero() {
		return 0
	}
	end := finished.Add(grace)
	if !seen.IsZero() {
		end = seen.Add(grace)
	}
	for _, d := range deadlines {
		if cut := d.Add(-DeadlineMargin); !d.IsZero() && cut.Before(end) {
			end = cut
		}
	}
	return max(0, min(end.Sub(now), grace))
}
