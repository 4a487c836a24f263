// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file builds the pods of the background, and their owners.

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ownerOf makes the owner with the first pod of a set, and knows it for the others.
func (r *rig) ownerOf(name string, i int, create func() (metav1.Object, error)) (metav1.Object, error) {
	if i%podsPerSet != 0 {
		owner, ok := r.owners.Load(name)
		if !ok {
			return nil, fmt.Errorf("the owner %s is missing", name)
		}
		return owner.(metav1.Object), nil
	}
	owner, err := create()
	if err != nil {
		return nil, err
	}
	r.owners.Store(name, owner)
	return owner, nil
}

// unboundPod is a pod that no scheduler binds to a node: a node's absence would end it, and a node's presence run it.
func unboundPod(owner metav1.Object, kind schema.GroupVersionKind, namespace, name string) (*corev1.Pod, error) {
	template, err := podTemplate()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name, pod.Spec.SchedulerName = namespace, name, "none"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	return pod, nil
}

// statusOf is a status with every container in the same state.
func statusOf(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{Phase: phase, StartTime: &now, HostIP: "192.0.2.1", PodIP: "198.51.100.1", QOSClass: corev1.PodQOSBurstable}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for i, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:simulated", State: state, Ready: state.Running != nil,
			ContainerID: fmt.Sprintf("containerd://%064x", i),
		})
	}
	return s
}
