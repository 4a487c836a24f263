// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a Job's owner asks of it, and what the policy says.

package cases

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// A CronJob that forbids overlap never runs again while its Job is stuck.
func TestCronJobForbid(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cron"},
		Spec: batchv1.CronJobSpec{
			Schedule:          "* * * * *",
			ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate:       batchv1.JobTemplateSpec{Spec: meshed(job("sleep 2")).Spec},
		},
	}
	s.must(kube.Create(t.Context(), cron))
	s.eventually("two runs", 2*patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		complete := 0
		for _, j := range s.jobs {
			if j.Status.Succeeded == 1 {
				complete++
			}
		}
		if complete < 2 {
			return fmt.Errorf("%d of %d Jobs are complete", complete, len(s.jobs))
		}
		return nil
	})
	s.mu.Lock()
	var jobs []*batchv1.Job
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	s.mu.Unlock()
	for _, j := range jobs {
		if j.Status.Succeeded == 1 {
			s.wholesome(j)
		}
	}
}

// A grace period gives way to a deadline that it would outlast.
func TestActiveDeadlineNearTheEnd(t *testing.T) {
	t.Parallel()
	s := begin(t, &v1alpha1.JobMeshPolicySpec{GracePeriodSeconds: new(int32(300))})
	s.completes(s.create(meshed(job("sleep 10", func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(60)) }))), patience)
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	j := s.create(meshed(job("sleep 15")))
	first := s.running(j)
	suspend := func(yes bool) {
		s.must(kube.Patch(t.Context(), j.DeepCopy(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, yes))))
	}
	suspend(true)
	s.vanishes("the pod of the suspended Job", first)
	suspend(false)
	s.completes(j, patience)
	if n := len(s.podsOf(j)); n != 2 {
		t.Errorf("the Job had %d pods, want 2", n)
	}
}

func TestJobDeletedMidWay(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	j := s.create(meshed(job("sleep 20")))
	pod := s.running(j)
	s.must(kube.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.vanishes("the pod of the deleted Job", pod)
	reasons, err := s.reasons(pod.Name)
	s.must(err)
	if len(reasons) > 0 {
		t.Errorf("the operator spoke of it: %v", reasons)
	}
}

// A Job that is to vanish at its end must have one.
func TestTTLZero(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	j := s.create(meshed(job("sleep 2", func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(0)) })))
	s.completes(j, patience)
	s.eventually("the Job to be gone", patience, func() error {
		if _, gone := s.seen(j); !gone {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

func TestParallelism20(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	const pods = 20
	j := s.create(meshed(job("sleep 2", func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = new(int32(pods)), new(int32(pods))
	})))
	s.completes(j, 2*patience)
	if n := len(s.podsOf(j)); n != pods {
		t.Errorf("the Job had %d pods, want %d", n, pods)
	}
}

// What was stuck before a policy enforced is reaped when it does.
func TestDryRunToEnforce(t *testing.T) {
	t.Parallel()
	s := begin(t, &v1alpha1.JobMeshPolicySpec{Mode: v1alpha1.ModeDryRun})
	j := s.create(meshed(job("sleep 1")))
	s.event(s.stuck(j).Name, "DryRun")
	s.untouched(j)
	s.held = true
	s.setMode(v1alpha1.ModeEnforce)
	s.completes(j, patience)
}

// Where no policy governs, the operator's default mode reports and does not touch.
func TestNoPolicy(t *testing.T) {
	t.Parallel()
	s := begin(t, nil)
	j := s.create(meshed(job("sleep 1")))
	s.event(s.stuck(j).Name, "DryRun")
	s.untouched(j)
}

func (s *scenario) setMode(mode v1alpha1.Mode) {
	s.t.Helper()
	policy := &v1alpha1.JobMeshPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "policy"}}
	s.must(kube.Patch(s.t.Context(), policy, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"mode":%q}}`, mode))))
}

// running waits until the app and the proxy of a Job's newest pod run, and returns the pod.
func (s *scenario) running(j *batchv1.Job) *corev1.Pod {
	s.t.Helper()
	var running *corev1.Pod
	s.eventually("the Job "+j.Name+" to run", patience, func() error {
		for _, pod := range s.podsOf(j) {
			proxy, app := containerOf(pod, proxyName), containerOf(pod, "app")
			if proxy != nil && proxy.State.Running != nil && app != nil && app.State.Running != nil {
				running = pod
				return nil
			}
		}
		return fmt.Errorf("pods: %s", states(s.podsOf(j)))
	})
	return running
}

// vanishes waits until a pod is gone.
func (s *scenario) vanishes(what string, pod *corev1.Pod) {
	s.t.Helper()
	s.eventually(what+" to be gone", patience, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.gone[pod.UID] {
			return fmt.Errorf("it is %s", states([]*corev1.Pod{s.pods[pod.UID]}))
		}
		return nil
	})
}
