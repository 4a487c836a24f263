// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the API server takes from whoever may create a pod, in the fields that it does not bound.

package podcache

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	build "github.com/jobmesh/jobmesh/test/builders"
)

// TestOwnersAreKeptShort writes what no Job can be into the reference to one: of it only the pod's name is kept.
func TestOwnersAreKeptShort(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for name, change := range map[string]func(*corev1.Pod){
		"a long name":         func(p *corev1.Pod) { p.OwnerReferences[0].Name = long },
		"a long UID":          func(p *corev1.Pod) { p.OwnerReferences[0].UID = types.UID(long) },
		"a long version":      func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "batch/" + long },
		"a name that is none": func(p *corev1.Pod) { p.OwnerReferences[0].Name = "../../secrets" },
		"an escape":           func(p *corev1.Pod) { p.OwnerReferences[0].Name = "\x1b[31mjob" },
	} {
		t.Run(name, func(t *testing.T) {
			pod := build.MakePod("p").App("app", build.Exited(0)).Proxy(build.Running()).With(change).Obj()
			kept := Strip(pod)
			if len(kept.OwnerReferences) > 0 || len(kept.Spec.Containers) > 0 {
				t.Errorf("the owner counts as a Job: %d bytes are kept", encodedSize(t, kept))
			}
		})
	}
	t.Run("owners beside the Job", func(t *testing.T) {
		pod := build.MakePod("p").App("app", build.Exited(0)).Proxy(build.Running()).Obj()
		for range 1000 {
			pod.OwnerReferences = append(pod.OwnerReferences, pod.OwnerReferences[0])
			pod.OwnerReferences[len(pod.OwnerReferences)-1].Controller = nil
		}
		if kept := Strip(pod); len(kept.OwnerReferences) != 1 {
			t.Errorf("%d owners are kept", len(kept.OwnerReferences))
		}
	})
}

// TestStatusesAreKeptShort writes a compromised kubelet's statuses.
func TestStatusesAreKeptShort(t *testing.T) {
	long := strings.Repeat("\u20ac", 1<<18)
	state := build.ExitedFor(0, long)
	state.Terminated.Message, state.Terminated.Signal = long, 9
	pod := build.MakePod("p").App("app", state).Proxy(build.Running()).Obj()
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].ContainerID = long
		pod.Status.ContainerStatuses[i].ImageID = long
		pod.Status.ContainerStatuses[i].LastTerminationState = *state
	}
	if size := encodedSize(t, Strip(pod)); size > 8<<10 {
		t.Errorf("%d bytes of the pod are kept", size)
	}
}
