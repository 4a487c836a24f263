// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file compares a meshed Job with its twin, the same Job without a mesh: the two must end alike.

package cases

import (
	"cmp"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// outcome is what a Job's owner sees of its end, without names and times.
type outcome struct {
	Condition         batchv1.JobConditionType
	Reason            string
	Succeeded, Failed int32
	CompletedIndexes  string
	Pods              []podOutcome
}

type podOutcome struct {
	Phase corev1.PodPhase
	Apps  []appOutcome
}

type appOutcome struct {
	Name     string
	Code     int32
	Restarts int32
}

// outcomeOf tells how a finished Job ended.
func (s *scenario) outcomeOf(j *batchv1.Job, end batchv1.JobCondition) outcome {
	job, _ := s.seen(j)
	o := outcome{
		Condition: end.Type, Reason: end.Reason,
		Succeeded: job.Status.Succeeded, Failed: job.Status.Failed, CompletedIndexes: job.Status.CompletedIndexes,
	}
	for _, pod := range s.podsOf(j) {
		p := podOutcome{Phase: pod.Status.Phase}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Name == proxyName || c.State.Terminated == nil {
				continue
			}
			p.Apps = append(p.Apps, appOutcome{Name: c.Name, Code: c.State.Terminated.ExitCode, Restarts: c.RestartCount})
		}
		slices.SortFunc(p.Apps, func(a, b appOutcome) int { return cmp.Compare(a.Name, b.Name) })
		o.Pods = append(o.Pods, p)
	}
	return o
}

// endsAsWithoutMesh runs a Job with a classic proxy and without one, and compares how they end. It returns how.
func (s *scenario) endsAsWithoutMesh(j *batchv1.Job, within time.Duration) outcome {
	s.t.Helper()
	plain := j.DeepCopy()
	plain.Name = j.Name + "-plain"
	a, b := s.create(meshed(j)), s.create(plain)
	got, want := s.outcomeOf(a, s.finished(a, within)), s.outcomeOf(b, s.finished(b, within))
	if diff := gocmp.Diff(want, got); diff != "" {
		s.t.Errorf("the meshed Job ended otherwise than without a mesh (-without +with):\n%s", diff)
	}
	s.wholesome(a)
	return got
}
