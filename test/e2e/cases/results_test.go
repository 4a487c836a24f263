// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// How Jobs end: the app's exit code decides, as without a mesh.

package cases

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestExitZero(t *testing.T) {
	t.Parallel()
	if got := begin(t, enforce()).endsAsWithoutMesh(job("sleep 2"), patience); got.Condition != batchv1.JobComplete {
		t.Errorf("the Job ended %s", got.Condition)
	}
}

func TestExitNonZeroUnderNever(t *testing.T) {
	t.Parallel()
	got := begin(t, enforce()).endsAsWithoutMesh(job("sleep 2; exit 3"), patience)
	if got.Condition != batchv1.JobFailed || got.Reason != batchv1.JobReasonBackoffLimitExceeded {
		t.Errorf("the Job ended %s %s", got.Condition, got.Reason)
	}
}

func TestRetriesUnderNever(t *testing.T) {
	t.Parallel()
	retried := func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(1)) }
	if got := begin(t, enforce()).endsAsWithoutMesh(job("sleep 1; exit 3", retried), patience); got.Failed != 2 {
		t.Errorf("%d pods failed, want 2", got.Failed)
	}
}

// Under OnFailure the kubelet starts a failed app again in the same pod, and needs its proxy there.
func TestRetriesUnderOnFailure(t *testing.T) {
	t.Parallel()
	const failTwice = `n=$(cat /scratch/n || echo 0); echo $((n+1)) > /scratch/n; sleep 1; [ $n -ge 2 ]`
	scratch := func(j *batchv1.Job) {
		spec := &j.Spec.Template.Spec
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	}
	got := begin(t, enforce()).endsAsWithoutMesh(job(failTwice, onFailure(4), scratch), 2*patience)
	if got.Condition != batchv1.JobComplete || len(got.Pods) != 1 || got.Pods[0].Apps[0].Restarts != 2 {
		t.Errorf("the Job ended otherwise than Complete after two restarts: %+v", got)
	}
}

func TestOOMKilled(t *testing.T) {
	t.Parallel()
	hungry := func(j *batchv1.Job) {
		c := &j.Spec.Template.Spec.Containers[0]
		c.Command = []string{"tail", "/dev/zero"}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("20Mi")}
	}
	got := begin(t, enforce()).endsAsWithoutMesh(job("", hungry), patience)
	if got.Condition != batchv1.JobFailed || len(got.Pods) != 1 || got.Pods[0].Apps[0].Code != 137 {
		t.Errorf("the Job ended otherwise than Failed with 137: %+v", got)
	}
}

func TestIndexedJob(t *testing.T) {
	t.Parallel()
	indexed := func(j *batchv1.Job) {
		j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		j.Spec.Completions, j.Spec.Parallelism = new(int32(3)), new(int32(2))
	}
	if got := begin(t, enforce()).endsAsWithoutMesh(job("sleep 1", indexed), patience); got.CompletedIndexes != "0-2" {
		t.Errorf("completed indexes: %q", got.CompletedIndexes)
	}
}
