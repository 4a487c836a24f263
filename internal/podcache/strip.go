// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The transform: what of a pod is kept in memory. It keeps what the decision reads, and nothing else.

package podcache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// transform is the cache's hook; it may also see a tombstone, which it leaves alone.
func transform(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return Strip(pod), nil
	}
	return object, nil
}

// Strip returns a pod with only those fields that a decision reads. Of a pod that is not a Job's only the name is kept.
func Strip(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}
	owner := verdict.JobOf(pod)
	if owner == nil {
		return kept
	}
	kept.OwnerReferences = []metav1.OwnerReference{*owner}
	kept.DeletionTimestamp = pod.DeletionTimestamp
	kept.Labels = boundedLabels(pod.Labels)
	for key, value := range pod.Annotations {
		if slices.Contains(keptAnnotations, key) {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, key, verdict.ShortAnnotation(key, istio.ShortAnnotation(key, value)))
		}
	}
	kept.Spec = corev1.PodSpec{
		NodeName:              pod.Spec.NodeName,
		RestartPolicy:         pod.Spec.RestartPolicy,
		HostNetwork:           pod.Spec.HostNetwork,
		ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds,
		InitContainers:        stripContainers(pod.Spec.InitContainers),
		Containers:            stripContainers(pod.Spec.Containers),
	}
	for i := range min(len(pod.Spec.EphemeralContainers), maxContainers) {
		kept.Spec.EphemeralContainers = append(kept.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: pod.Spec.EphemeralContainers[i].Name}})
	}
	kept.Status = corev1.PodStatus{
		Phase:                      pod.Status.Phase,
		StartTime:                  pod.Status.StartTime,
		InitContainerStatuses:      stripStatuses(pod.Status.InitContainerStatuses),
		ContainerStatuses:          stripStatuses(pod.Status.ContainerStatuses),
		EphemeralContainerStatuses: stripStatuses(pod.Status.EphemeralContainerStatuses),
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.AllContainersRestarting {
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	return kept
}

var keptAnnotations = slices.Concat(istio.ReadAnnotations, verdict.ReadAnnotations)

// stripContainers keeps maxContainers, and the proxy among them.
func stripContainers(containers []corev1.Container) []corev1.Container {
	if containers == nil {
		return nil
	}
	kept := make([]corev1.Container, 0, min(len(containers), maxContainers+1))
	for i := range containers {
		c := &containers[i]
		if len(kept) >= maxContainers && c.Name != istio.ProxyContainer {
			continue
		}
		next := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, RestartPolicyRules: boundedRules(c.RestartPolicyRules)}
		if c.Name == istio.ProxyContainer {
			next.Command, next.Args = istio.ShortCommand(c)
			next.Env = istio.ShortVariables(c)
		}
		kept = append(kept, next)
	}
	return kept
}

func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	if statuses == nil {
		return nil
	}
	kept := make([]corev1.ContainerStatus, 0, min(len(statuses), maxContainers+1))
	for i := range statuses {
		s := &statuses[i]
		if len(kept) >= maxContainers && s.Name != istio.ProxyContainer {
			continue
		}
		next := corev1.ContainerStatus{Name: s.Name, ContainerID: cut(s.ContainerID)}
		// Each by itself: the API allows one of them to be set, but a decision must not differ where it holds more.
		if s.State.Running != nil {
			next.State.Running = &corev1.ContainerStateRunning{}
		}
		if end := s.State.Terminated; end != nil {
			next.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: end.ExitCode, Reason: cut(end.Reason), FinishedAt: end.FinishedAt}
		}
		if s.State.Waiting != nil {
			next.State.Waiting = &corev1.ContainerStateWaiting{}
		}
		kept = append(kept, next)
	}
	return kept
}
