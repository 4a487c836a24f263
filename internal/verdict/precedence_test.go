// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Where two rows of the table hold, the first wins: every pair that can hold together.

package verdict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// makes changes a stuck pod so that a row holds; the rows that hold beside it stay as they are where that is possible.
var makes = map[Reason]func(*Input){
	NotJobPod:      func(in *Input) { in.Pod.OwnerReferences = nil },
	PodFinished:    func(in *Input) { in.Pod.Status.Phase = corev1.PodSucceeded },
	PodTerminating: func(in *Input) { deletedPod(in.Pod) },
	NoProxy:        func(in *Input) { removeProxy(in.Pod) },
	NativeSidecar: func(in *Input) {
		proxy := removeProxy(in.Pod)
		build.Always(&proxy)
		in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, proxy)
	},
	Gateway:  func(in *Input) { istio.Inspect(in.Pod).Container.Args = []string{"proxy", "router"} },
	OptedOut: func(in *Input) { in.Pod.Annotations["jobmesh.dev/mode"] = "Disabled" },

	PolicyDisabled: mode(v1alpha1.ModeDisabled),
	NoAppContainers: func(in *Input) {
		for _, c := range in.Pod.Spec.Containers {
			in.Settings.IgnoredContainers = append(in.Settings.IgnoredContainers, c.Name)
		}
	},
	ProxyTerminated: func(in *Input) { setProxy(in.Pod, build.Exited(0)) },
	InitPending: func(in *Input) {
		in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, corev1.Container{Name: "init"})
	},
	AppStatusUnknown:   addApp("unknown", nil),
	AppWaiting:         addApp("waiting", build.Waiting("")),
	AppRunning:         addApp("running", build.Running()),
	AppWillRestart:     addApp("failed", build.Exited(1), build.Restart(corev1.ContainerRestartPolicyOnFailure)),
	ProxyNotRunning:    func(in *Input) { setProxy(in.Pod, build.Waiting("")) },
	HostNetwork:        func(in *Input) { in.Pod.Spec.HostNetwork = true },
	StatusPortDisabled: func(in *Input) { in.Pod.Annotations["status.sidecar.istio.io/port"] = "0" },
	ProxylessGRPC:      func(in *Input) { build.Env("DISABLE_ENVOY", "true")(istio.Inspect(in.Pod).Container) },
	GracePeriod:        grace(time.Hour),
	DryRun:             mode(v1alpha1.ModeDryRun),
	Backoff:            func(in *Input) { in.History.RetryAt = now.Add(time.Minute) },
	Quitting:           func(in *Input) { in.History.AskAgainAt = now.Add(time.Minute) },
	Stuck:              func(*Input) {},
}

// apart lists, for a row, the later rows that cannot hold with it.
var apart = map[Reason][]Reason{
	NoProxy:          {NativeSidecar, Gateway, ProxyTerminated, ProxylessGRPC},
	NativeSidecar:    {Gateway, ProxyTerminated},
	NoAppContainers:  {AppStatusUnknown, AppWaiting, AppRunning, AppWillRestart, GracePeriod},
	AppStatusUnknown: {GracePeriod},
	AppWaiting:       {GracePeriod},
	AppRunning:       {GracePeriod},
	AppWillRestart:   {GracePeriod},
}

func TestPrecedence(t *testing.T) {
	for i, first := range table {
		for _, second := range table[i+1:] {
			if slices.Contains(apart[first.reason], second.reason) {
				continue
			}
			t.Run(fmt.Sprintf("%s before %s", first.reason, second.reason), func(t *testing.T) {
				in := test{pod: stuckPod().Annotation("any", "")}.input()
				makes[second.reason](&in)
				makes[first.reason](&in)
				for _, reason := range []Reason{first.reason, second.reason} {
					if !holds(in, reason) {
						t.Fatalf("the pod was to make %s hold, and does not", reason)
					}
				}
				if d := Decide(in); d.Verdict != first.verdict || d.Reason != first.reason {
					t.Errorf("got %s %s", d.Verdict, d.Reason)
				}
			})
		}
	}
}

// holds asks one row of the table, whatever the rows before it say.
func holds(in Input, reason Reason) bool {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.reason == reason })
	if i < 0 {
		return false
	}
	_, _, ok := rules[i].holds(gather(in))
	return ok
}

func removeProxy(pod *corev1.Pod) corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "istio-proxy" })
	proxy := pod.Spec.Containers[i]
	pod.Spec.Containers = slices.Delete(pod.Spec.Containers, i, i+1)
	return proxy
}

func setProxy(pod *corev1.Pod, state *corev1.ContainerState) {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == "istio-proxy" {
			pod.Status.ContainerStatuses[i].State = *state
		}
	}
}

func addApp(name string, state *corev1.ContainerState, changes ...func(*corev1.Container)) func(*Input) {
	return func(in *Input) {
		added := build.MakePod("pod").App(name, state, changes...).Obj()
		in.Pod.Spec.Containers = append(in.Pod.Spec.Containers, added.Spec.Containers...)
		in.Pod.Status.ContainerStatuses = append(in.Pod.Status.ContainerStatuses, added.Status.ContainerStatuses...)
	}
}
