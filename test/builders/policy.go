// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Policies and Jobs.

package builders

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// Policy builds a JobMeshPolicy.
type Policy struct{ policy v1alpha1.JobMeshPolicy }

// MakePolicy begins a policy in the namespace default, with an empty spec: Enforce for every pod.
func MakePolicy(name string) *Policy {
	return &Policy{v1alpha1.JobMeshPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}}
}

// Obj returns the policy.
func (p *Policy) Obj() *v1alpha1.JobMeshPolicy { return p.policy.DeepCopy() }

// Namespace sets the namespace.
func (p *Policy) Namespace(name string) *Policy { p.policy.Namespace = name; return p }

// Mode sets the mode.
func (p *Policy) Mode(mode v1alpha1.Mode) *Policy { p.policy.Spec.Mode = mode; return p }

// Selects sets a label that selected pods carry.
func (p *Policy) Selects(key, value string) *Policy {
	p.policy.Spec.PodSelector = &v1alpha1.PodSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}}
	return p
}

// Priority sets the priority.
func (p *Policy) Priority(n int32) *Policy { p.policy.Spec.Priority = &n; return p }

// Age sets how long before Start the policy was created.
func (p *Policy) Age(age time.Duration) *Policy {
	p.policy.CreationTimestamp = metav1.Time{Time: Start.Add(-age)}
	return p
}

// Grace sets the grace period.
func (p *Policy) Grace(seconds int32) *Policy { p.policy.Spec.GracePeriodSeconds = &seconds; return p }

// Ignores adds ignored containers.
func (p *Policy) Ignores(names ...v1alpha1.ContainerName) *Policy {
	p.policy.Spec.IgnoredContainers = append(p.policy.Spec.IgnoredContainers, names...)
	return p
}

// Quit sets the bound on an attempt and the fallback.
func (p *Policy) Quit(timeoutSeconds int32, fallback v1alpha1.QuitFallback) *Policy {
	p.policy.Spec.Quit = &v1alpha1.Quit{TimeoutSeconds: &timeoutSeconds, Fallback: fallback}
	return p
}

// MakeJob makes a Job of one pod that holds the pod's containers and restart policy, without status.
func MakeJob(name string, pod *corev1.Pod) *batchv1.Job {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: *pod.Spec.DeepCopy()}
	template.Spec.NodeName = ""
	for i := range template.Spec.Containers {
		template.Spec.Containers[i].Image = "image"
	}
	for i := range template.Spec.InitContainers {
		template.Spec.InitContainers[i].Image = "image"
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace},
		Spec:       batchv1.JobSpec{Template: template},
	}
}

// With changes the policy in any way.
func (p *Policy) With(change func(*v1alpha1.JobMeshPolicy)) *Policy { change(&p.policy); return p }
