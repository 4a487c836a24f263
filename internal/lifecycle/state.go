// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The state of one container of the spec, as far as the pod's status tells it.

package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is what the pod's status says of a container of the spec.
type State string

// The states of a container.
const (
	// StateUnknown: the status does not list the container yet.
	StateUnknown State = "Unknown"
	// StateWaiting: it is being created, or waits to be started again. An empty state means this too (API: ContainerState).
	StateWaiting State = "Waiting"
	// StateRunning: it runs.
	StateRunning State = "Running"
	// StateTerminated: it ended. Whether for good, Fact.Final tells.
	StateTerminated State = "Terminated"
)

// Fact is what is known of one container.
type Fact struct {
	State State
	// Final is true where the container has ended and the kubelet will not start it again.
	Final bool
	// ExitCode of the last end, where State is Terminated.
	ExitCode int32
	// FinishedAt is when it ended; zero where unknown.
	FinishedAt time.Time
}

// Reader tells the facts of one pod's containers. It looks at the whole pod once, so that a pod of a thousand containers costs
// a thousand look-ups and not a million.
type Reader struct {
	pod           *corev1.Pod
	restartsWhole bool
	statuses      map[string]*corev1.ContainerStatus
	initStatuses  map[string]*corev1.ContainerStatus
}

// Read prepares a Reader for a pod, which must not change while the Reader is used.
func Read(pod *corev1.Pod) *Reader {
	r := &Reader{
		pod:          pod,
		statuses:     byName(pod.Status.ContainerStatuses),
		initStatuses: byName(pod.Status.InitContainerStatuses),
	}
	r.restartsWhole = r.findRestartWhole()
	return r
}

// Container tells the state of one of spec.containers.
func (r *Reader) Container(container *corev1.Container) Fact {
	return r.fact(r.statuses[container.Name], func(exitCode int32) bool {
		return ShouldRestart(container, r.pod.Spec.RestartPolicy, exitCode)
	})
}

// InitContainer tells the state of one of spec.initContainers. Final means that it succeeded, or failed and is not tried again:
// of those that are no sidecars the kubelet asks only about a failed one (kubelet: computeInitContainerActions).
func (r *Reader) InitContainer(container *corev1.Container) Fact {
	return r.fact(r.initStatuses[container.Name], func(exitCode int32) bool {
		return (exitCode != 0 || IsSidecar(container)) && ShouldRestart(container, r.pod.Spec.RestartPolicy, exitCode)
	})
}

// fact looks at running first, as the kubelet does, though the API allows only one of the states to be set.
func (r *Reader) fact(status *corev1.ContainerStatus, restarts func(exitCode int32) bool) Fact {
	if status == nil {
		return Fact{State: StateUnknown}
	}
	switch {
	case status.State.Running != nil:
		return Fact{State: StateRunning}
	case status.State.Terminated != nil:
		end := status.State.Terminated
		final := !r.restartsWhole && end.Reason != reasonRestartingAllContainers && !restarts(end.ExitCode)
		return Fact{State: StateTerminated, Final: final, ExitCode: end.ExitCode, FinishedAt: end.FinishedAt.Time}
	default:
		return Fact{State: StateWaiting}
	}
}

func byName(statuses []corev1.ContainerStatus) map[string]*corev1.ContainerStatus {
	index := make(map[string]*corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		index[statuses[i].Name] = &statuses[i]
	}
	return index
}

// IsSidecar tells whether an init container is a native sidecar, which the kubelet starts before the app and stops after it
// (kubelet: IsRestartableInitContainer).
func IsSidecar(initContainer *corev1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
