// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a scenario waits for and checks: ends of Jobs, stuck pods, events, and what must hold of every proxy.

package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reaction bounds the time from the last app container's end to the proxy's, where nothing holds the operator up. How fast it
// really is, the benchmarks say.
const reaction = 45 * time.Second

// finished waits for a Job's end and returns the condition that tells of it.
func (s *scenario) finished(j *batchv1.Job, within time.Duration) batchv1.JobCondition {
	s.t.Helper()
	var end batchv1.JobCondition
	s.eventually("the end of the Job "+j.Name, within, func() error {
		job, _ := s.seen(j)
		if job == nil {
			return fmt.Errorf("not seen yet")
		}
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				end = c
				return nil
			}
		}
		return fmt.Errorf("pods: %s", states(s.podsOf(j)))
	})
	return end
}

// completes waits until a Job is Complete, and checks its pods.
func (s *scenario) completes(j *batchv1.Job, within time.Duration) {
	s.t.Helper()
	if end := s.finished(j, within); end.Type != batchv1.JobComplete {
		s.t.Errorf("the Job %s: %s: %s: %s", j.Name, end.Type, end.Reason, end.Message)
	}
	s.wholesome(j)
}

// stuck waits until all app containers of a Job's first pod have ended and the proxy still runs, and returns the pod.
func (s *scenario) stuck(j *batchv1.Job) *corev1.Pod {
	s.t.Helper()
	var stuck *corev1.Pod
	s.eventually("the Job "+j.Name+" to be stuck", patience, func() error {
		for _, pod := range s.podsOf(j) {
			if proxy := containerOf(pod, proxyName); proxy != nil && proxy.State.Running != nil && !slices.ContainsFunc(pod.Status.ContainerStatuses,
				func(c corev1.ContainerStatus) bool { return c.Name != proxyName && c.State.Terminated == nil }) {
				stuck = pod
				return nil
			}
		}
		return fmt.Errorf("pods: %s", states(s.podsOf(j)))
	})
	return stuck
}

// wholesome checks what must hold of every classic proxy whose pod has finished: it was never restarted, ended with code 0, and
// not before any app container nor long after the last. The kubelet gives times in whole seconds.
func (s *scenario) wholesome(j *batchv1.Job) {
	s.t.Helper()
	s.mu.Lock()
	for _, moment := range s.wrong {
		s.t.Error(moment)
	}
	s.mu.Unlock()
	for _, pod := range s.podsOf(j) {
		proxy := containerOf(pod, proxyName)
		if proxy == nil || s.wasCut(pod) {
			continue
		}
		if proxy.RestartCount != 0 {
			s.t.Errorf("%s: istio-proxy was restarted %d times", pod.Name, proxy.RestartCount)
		}
		end := proxy.State.Terminated
		if end == nil {
			s.t.Errorf("%s: istio-proxy did not end: %s", pod.Name, states([]*corev1.Pod{pod}))
			continue
		}
		if end.ExitCode != 0 {
			s.t.Errorf("%s: istio-proxy ended with %d", pod.Name, end.ExitCode)
		}
		var last time.Time
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == proxyName || c.State.Terminated == nil || strings.HasPrefix(c.Name, ignored) {
				continue
			}
			if finished := c.State.Terminated.FinishedAt.Time; finished.After(last) {
				last = finished
			}
		}
		switch took := end.FinishedAt.Sub(last); {
		case took < 0:
			s.t.Errorf("%s: istio-proxy ended %s before the last app container", pod.Name, -took)
		case took > reaction && !s.held:
			s.t.Errorf("%s: istio-proxy ended %s after the last app container, want at most %s", pod.Name, took, reaction)
		}
	}
}

func (s *scenario) wasCut(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut[pod.UID]
}

// event waits for an event about a pod with the given reason.
func (s *scenario) event(pod, reason string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the event %s about %s", reason, pod), patience, func() error {
		reasons, err := s.reasons(pod)
		if err != nil {
			return err
		}
		if !slices.Contains(reasons, reason) {
			return fmt.Errorf("there are %v", reasons)
		}
		return nil
	})
}

// reasons are the reasons of the operator's events about a pod.
func (s *scenario) reasons(pod string) ([]string, error) {
	list, err := clientset.EventsV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.Name == pod && strings.Contains(event.ReportingController, "jobmesh") {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons, nil
}

// untouched waits a while and checks that a pod's proxy still runs and was never asked to quit.
func (s *scenario) untouched(j *batchv1.Job) {
	s.t.Helper()
	time.Sleep(5 * time.Second)
	pod := s.stuck(j)
	reasons, err := s.reasons(pod.Name)
	s.must(err)
	if slices.Contains(reasons, "Reaped") || slices.Contains(reasons, "QuitFailed") {
		s.t.Errorf("%s was touched: %v", pod.Name, reasons)
	}
}
