// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// States of a pod's containers, and the pod that starts over as a whole.

package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/lifecycle"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func ended(code int32, final bool) lifecycle.Fact {
	return lifecycle.Fact{State: lifecycle.StateTerminated, Final: final, ExitCode: code, FinishedAt: build.FinishedAt}
}

func TestContainer(t *testing.T) {
	both := build.Exited(0)
	both.Running = &corev1.ContainerStateRunning{}
	waitingToo := build.Exited(0)
	waitingToo.Waiting = &corev1.ContainerStateWaiting{}

	tests := map[string]struct {
		pod  *build.Pod
		want lifecycle.Fact
	}{
		"no status":             {build.MakePod("p").App("app", nil), lifecycle.Fact{State: lifecycle.StateUnknown}},
		"an empty state waits":  {build.MakePod("p").App("app", &corev1.ContainerState{}), lifecycle.Fact{State: lifecycle.StateWaiting}},
		"creating":              {build.MakePod("p").App("app", build.Waiting("ContainerCreating")), lifecycle.Fact{State: lifecycle.StateWaiting}},
		"in crash-loop backoff": {build.MakePod("p").RestartPolicy("OnFailure").App("app", build.Waiting("CrashLoopBackOff")), lifecycle.Fact{State: lifecycle.StateWaiting}},
		"running":               {build.MakePod("p").App("app", build.Running()), lifecycle.Fact{State: lifecycle.StateRunning}},

		"running goes before terminated where a status claims both": {build.MakePod("p").App("app", both), lifecycle.Fact{State: lifecycle.StateRunning}},
		"terminated goes before waiting where a status claims both": {build.MakePod("p").App("app", waitingToo), ended(0, true)},

		"success under Never":     {build.MakePod("p").App("app", build.Exited(0)), ended(0, true)},
		"failure under Never":     {build.MakePod("p").App("app", build.Exited(3)), ended(3, true)},
		"success under OnFailure": {build.MakePod("p").RestartPolicy("OnFailure").App("app", build.Exited(0)), ended(0, true)},
		"failure under OnFailure": {build.MakePod("p").RestartPolicy("OnFailure").App("app", build.Exited(3)), ended(3, false)},
		"success under Always":    {build.MakePod("p").RestartPolicy("Always").App("app", build.Exited(0)), ended(0, false)},
		"the container's own policy": {
			build.MakePod("p").RestartPolicy("OnFailure").App("app", build.Exited(3), build.Restart(never)), ended(3, true),
		},
		"a rule restarts it":               {build.MakePod("p").App("app", build.Exited(3), build.Restart(never), build.Rule(restart, in, 3)), ended(3, false)},
		"OOMKilled is an exit as any":      {build.MakePod("p").App("app", build.ExitedFor(137, "OOMKilled")), ended(137, true)},
		"OOMKilled under OnFailure":        {build.MakePod("p").RestartPolicy("OnFailure").App("app", build.ExitedFor(137, "OOMKilled")), ended(137, false)},
		"ContainerCannotRun under Never":   {build.MakePod("p").App("app", build.ExitedFor(128, "ContainerCannotRun")), ended(128, true)},
		"Completed with another exit code": {build.MakePod("p").RestartPolicy("OnFailure").App("app", build.ExitedFor(1, "Completed")), ended(1, false)},
		"it ended because the pod starts over": {
			build.MakePod("p").App("app", build.ExitedFor(137, "RestartingAllContainers")), ended(137, false),
		},
		"finishedAt unknown": {
			build.MakePod("p").App("app", &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			lifecycle.Fact{State: lifecycle.StateTerminated, Final: true},
		},
		"an init container's status of the same name is another's": {
			build.MakePod("p").Init("app", build.Exited(0)).App("app", nil), lifecycle.Fact{State: lifecycle.StateUnknown},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			if diff := cmp.Diff(tc.want, lifecycle.Read(pod).Container(&pod.Spec.Containers[0])); diff != "" {
				t.Errorf("fact (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInitContainer(t *testing.T) {
	tests := map[string]struct {
		pod  *build.Pod
		want lifecycle.Fact
	}{
		"no status": {build.MakePod("p").Init("init", nil), lifecycle.Fact{State: lifecycle.StateUnknown}},
		"waiting":   {build.MakePod("p").Init("init", build.Waiting("PodInitializing")), lifecycle.Fact{State: lifecycle.StateWaiting}},
		"running":   {build.MakePod("p").Init("init", build.Running()), lifecycle.Fact{State: lifecycle.StateRunning}},
		"success":   {build.MakePod("p").Init("init", build.Exited(0)), ended(0, true)},

		"success is final under any policy of the pod": {build.MakePod("p").RestartPolicy("Always").Init("init", build.Exited(0)), ended(0, true)},
		"success is final whatever the rules say": {
			build.MakePod("p").Init("init", build.Exited(0), build.Restart(never), build.Rule(restart, in, 0)), ended(0, true),
		},
		"failure under Never":     {build.MakePod("p").Init("init", build.Exited(1)), ended(1, true)},
		"failure under OnFailure": {build.MakePod("p").RestartPolicy("OnFailure").Init("init", build.Exited(1)), ended(1, false)},
		"its own policy":          {build.MakePod("p").RestartPolicy("OnFailure").Init("init", build.Exited(1), build.Restart(never)), ended(1, true)},
		"a rule tries it again":   {build.MakePod("p").Init("init", build.Exited(3), build.Restart(never), build.Rule(restart, in, 3)), ended(3, false)},
		"a rule that does not match": {
			build.MakePod("p").Init("init", build.Exited(1), build.Restart(never), build.Rule(restart, in, 3)), ended(1, true),
		},
		"a sidecar is always started again": {build.MakePod("p").Init("init", build.Exited(0), build.Always), ended(0, false)},
		"it ended because the pod starts over": {
			build.MakePod("p").Init("init", build.ExitedFor(0, "RestartingAllContainers")), ended(0, false),
		},
		"its rule starts the pod over, even after success": {
			build.MakePod("p").Init("init", build.Exited(0), build.Restart(never), build.Rule(restartAll, in, 0)), ended(0, false),
		},
		"an app container's status of the same name is another's": {
			build.MakePod("p").App("init", build.Exited(0)).Init("init", nil), lifecycle.Fact{State: lifecycle.StateUnknown},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			if diff := cmp.Diff(tc.want, lifecycle.Read(pod).InitContainer(&pod.Spec.InitContainers[0])); diff != "" {
				t.Errorf("fact (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAllContainersRestart asks about a container that is finished by itself, in a pod that starts over, or does not.
func TestAllContainersRestart(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, corev1.PodCondition{Type: kind, Status: status})
		}
	}
	tests := map[string]struct {
		pod       *build.Pod
		wantFinal bool
	}{
		"the condition says so":          {build.MakePod("p").With(condition(corev1.AllContainersRestarting, corev1.ConditionTrue)), false},
		"the condition denies it":        {build.MakePod("p").With(condition(corev1.AllContainersRestarting, corev1.ConditionFalse)), true},
		"the condition is unsure":        {build.MakePod("p").With(condition(corev1.AllContainersRestarting, corev1.ConditionUnknown)), true},
		"another condition says nothing": {build.MakePod("p").With(condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue)), true},

		"another container's rule matches": {
			build.MakePod("p").App("other", build.Exited(42), build.Restart(never), build.Rule(restartAll, in, 42)), false,
		},
		"its rules count without a policy of its own": {build.MakePod("p").App("other", build.Exited(42), build.Rule(restartAll, in, 42)), false},
		"another container's rule does not match":     {build.MakePod("p").App("other", build.Exited(1), build.Restart(never), build.Rule(restartAll, in, 42)), true},
		"an earlier rule matches first": {
			build.MakePod("p").App("other", build.Exited(42), build.Restart(never), build.Rule(restart, in, 42), build.Rule(restartAll, in, 42)), true,
		},
		"another container with the rule still runs": {build.MakePod("p").App("other", build.Running(), build.Restart(never), build.Rule(restartAll, in, 42)), true},
		"another container with the rule has no status": {
			build.MakePod("p").App("other", nil, build.Restart(never), build.Rule(restartAll, notIn, 0)), true,
		},
		"another container only restarts itself": {build.MakePod("p").App("other", build.Exited(42), build.Restart(never), build.Rule(restart, in, 42)), true},
		"an init container's rule matches": {
			build.MakePod("p").Init("init", build.Exited(42), build.Restart(never), build.Rule(restartAll, in, 42)), false,
		},
		"a sidecar's rule matches": {build.MakePod("p").Init("side", build.Exited(42), build.Always, build.Rule(restartAll, in, 42)), false},
		"the proxy's rule matches": {build.MakePod("p").Proxy(build.Exited(255), build.Restart(never), build.Rule(restartAll, notIn, 0)), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.App("app", build.Exited(0)).Obj()
			app := &pod.Spec.Containers[len(pod.Spec.Containers)-1]
			if got := lifecycle.Read(pod).Container(app).Final; got != tc.wantFinal {
				t.Errorf("final is %t, want %t", got, tc.wantFinal)
			}
		})
	}
}

func TestIsSidecar(t *testing.T) {
	for name, tc := range map[string]struct {
		container *corev1.Container
		want      bool
	}{
		"no policy of its own": {container(), false},
		"Always":               {container(build.Always), true},
		"OnFailure":            {container(build.Restart(onFailure)), false},
		"Never":                {container(build.Restart(never)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lifecycle.IsSidecar(tc.container); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
