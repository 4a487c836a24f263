// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package builders makes pods, policies and Jobs for tests, in a line or two each.
package builders

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Start is when every built pod and Job started.
var Start = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// Pod builds a pod.
type Pod struct{ pod corev1.Pod }

// MakePod begins a Running pod of a Job, without containers, under restartPolicy Never.
func MakePod(name string) *Pod {
	return &Pod{corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name + "-uid"),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name + "-job", UID: "job-uid", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: Start}},
	}}
}

// Obj returns the pod.
func (p *Pod) Obj() *corev1.Pod { return p.pod.DeepCopy() }

// With changes the pod in any way.
func (p *Pod) With(change func(*corev1.Pod)) *Pod { change(&p.pod); return p }

// Namespace sets the namespace.
func (p *Pod) Namespace(name string) *Pod { p.pod.Namespace = name; return p }

// Phase sets status.phase.
func (p *Pod) Phase(phase corev1.PodPhase) *Pod { p.pod.Status.Phase = phase; return p }

// RestartPolicy sets the pod's restartPolicy.
func (p *Pod) RestartPolicy(policy corev1.RestartPolicy) *Pod {
	p.pod.Spec.RestartPolicy = policy
	return p
}

// Owner replaces the pod's controller; an empty kind leaves it with none.
func (p *Pod) Owner(apiVersion, kind string) *Pod {
	p.pod.OwnerReferences = nil
	if kind != "" {
		p.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner-uid", Controller: new(true)}}
	}
	return p
}

// Label adds a label.
func (p *Pod) Label(key, value string) *Pod {
	if p.pod.Labels == nil {
		p.pod.Labels = map[string]string{}
	}
	p.pod.Labels[key] = value
	return p
}

// Annotation adds an annotation.
func (p *Pod) Annotation(key, value string) *Pod {
	if p.pod.Annotations == nil {
		p.pod.Annotations = map[string]string{}
	}
	p.pod.Annotations[key] = value
	return p
}

// HostNetwork puts the pod on the node's network.
func (p *Pod) HostNetwork() *Pod { p.pod.Spec.HostNetwork = true; return p }

// Deadline sets the pod's activeDeadlineSeconds.
func (p *Pod) Deadline(seconds int64) *Pod { p.pod.Spec.ActiveDeadlineSeconds = &seconds; return p }

// App adds an app container in a state; nil leaves it without a status.
func (p *Pod) App(name string, state *corev1.ContainerState, change ...func(*corev1.Container)) *Pod {
	return p.container(corev1.Container{Name: name}, state, change)
}

// Proxy adds a classic istio-proxy in a state; nil leaves it without a status.
func (p *Pod) Proxy(state *corev1.ContainerState, change ...func(*corev1.Container)) *Pod {
	return p.container(corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}, state, change)
}

// Init adds an init container in a state; nil leaves it without a status.
func (p *Pod) Init(name string, state *corev1.ContainerState, change ...func(*corev1.Container)) *Pod {
	c := corev1.Container{Name: name}
	for _, f := range change {
		f(&c)
	}
	p.pod.Spec.InitContainers = append(p.pod.Spec.InitContainers, c)
	if state != nil {
		p.pod.Status.InitContainerStatuses = append(p.pod.Status.InitContainerStatuses, status(name, *state))
	}
	return p
}

// NativeProxy adds istio-proxy as a native sidecar, running.
func (p *Pod) NativeProxy() *Pod {
	return p.Init("istio-proxy", Running(), Always, Args("proxy", "sidecar"))
}

func (p *Pod) container(c corev1.Container, state *corev1.ContainerState, change []func(*corev1.Container)) *Pod {
	for _, f := range change {
		f(&c)
	}
	p.pod.Spec.Containers = append(p.pod.Spec.Containers, c)
	if state != nil {
		p.pod.Status.ContainerStatuses = append(p.pod.Status.ContainerStatuses, status(c.Name, *state))
	}
	return p
}

func status(name string, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state, ContainerID: "containerd://" + name}
}
