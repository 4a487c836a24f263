// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the verdict table leaves to be asked: which containers count, what a proxy is, what a policy may say.

package verdict

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/lifecycle"
	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestFinePrint(t *testing.T) {
	const (
		app   = "app App Terminated final: exit code 0, and the kubelet will not start it again"
		proxy = "istio-proxy Proxy Running: running"
	)
	hour := func(in *Input) { in.Settings.GracePeriod = time.Hour }
	podDeadline := func(seconds int64) *build.Pod { return stuckPod().Deadline(seconds) }
	noFinishedAt := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Reset()
	}

	for name, tc := range map[string]test{
		"a native sidecar that runs is no app container": {
			build.MakePod("pod").Init("vault", build.Running(), build.Always).App("app", build.Exited(0)).Proxy(build.Running()), nil, stuck,
			[]string{"vault Sidecar Running: a native sidecar keeps no pod from finishing", app, proxy},
		},
		"a native sidecar without a status neither": {
			build.MakePod("pod").Init("vault", nil, build.Always).App("app", build.Exited(0)).Proxy(build.Running()), nil, stuck, nil,
		},
		"a native sidecar that failed neither": {
			build.MakePod("pod").Init("vault", build.Exited(1), build.Always).App("app", build.Exited(0)).Proxy(build.Running()), nil, stuck, nil,
		},
		"an ephemeral container that runs is no app container": {
			stuckPod().With(ephemeral("debugger", build.Running())), nil, stuck,
			[]string{app, proxy, "debugger Ephemeral Running: ephemeral containers keep no pod from finishing"},
		},
		"ephemeral containers in any state": {
			stuckPod().With(ephemeral("a", nil)).With(ephemeral("b", build.Waiting(""))).With(ephemeral("c", build.Exited(1))), nil, stuck,
			[]string{
				app, proxy,
				"a Ephemeral Unknown: ephemeral containers keep no pod from finishing",
				"b Ephemeral Waiting: ephemeral containers keep no pod from finishing",
				"c Ephemeral Terminated: ephemeral containers keep no pod from finishing",
			},
		},
		"a pod with ephemeral containers alone has no app": {
			build.MakePod("pod").Proxy(build.Running()).With(ephemeral("debugger", build.Exited(0))), nil, ignored(NoAppContainers, noApp), nil,
		},
		"an init container that merely bears the name is no proxy": {
			build.MakePod("pod").Init("istio-proxy", build.Exited(0)).App("app", build.Exited(0)), nil, ignored(NoProxy, noProxy),
			[]string{"istio-proxy Init Terminated final: it succeeded", app},
		},
		"an init container that merely bears the name must succeed as any": {
			build.MakePod("pod").Init("istio-proxy", build.Running()).App("app", build.Exited(0)).Proxy(build.Running()), nil,
			waitsFor(InitPending, `Init container "istio-proxy" has not succeeded yet.`),
			[]string{"istio-proxy Init Running: it must succeed before the app starts", app, proxy},
		},
		"an ephemeral container that merely bears the name is no proxy": {
			build.MakePod("pod").App("app", build.Exited(0)).With(ephemeral("istio-proxy", build.Running())), nil, ignored(NoProxy, noProxy),
			[]string{app, "istio-proxy Ephemeral Running: ephemeral containers keep no pod from finishing"},
		},
		"a classic proxy beside a native one is the one that counts": {
			build.MakePod("pod").NativeProxy().App("app", build.Exited(0)).Proxy(build.Running()), nil, stuck,
			[]string{"istio-proxy Sidecar Running: a native sidecar keeps no pod from finishing", app, proxy},
		},
		"an empty state is waiting": {
			build.MakePod("pod").App("app", &corev1.ContainerState{}).Proxy(build.Running()), nil,
			waitsFor(AppWaiting, `App container "app" is waiting to start.`), []string{"app App Waiting: waiting to start", proxy},
		},
		"a proxy with an empty state is waiting": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(&corev1.ContainerState{}), nil, waitsFor(ProxyNotRunning, proxyNotRunning), nil,
		},
		"a container that claims to run and to have ended runs": {
			stuckPod().With(func(pod *corev1.Pod) {
				pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
			}), nil, waitsFor(AppRunning, `App container "app" is running.`), nil,
		},

		"the role is the first word after proxy that is no flag": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Args("proxy", "--log_as_json", "router", "sidecar")), nil,
			ignored(Gateway, gateway), nil,
		},
		"the role is read from the command too": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Args(), func(c *corev1.Container) {
				c.Command = []string{"pilot-agent", "proxy", "router"}
			}), nil, ignored(Gateway, gateway), nil,
		},
		"no role is a sidecar's": {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Args()), nil, stuck, nil},

		"DISABLE_ENVOY=T":   {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "T")), nil, blocked(ProxylessGRPC, proxyless), nil},
		"DISABLE_ENVOY=1":   {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "1")), nil, blocked(ProxylessGRPC, proxyless), nil},
		"DISABLE_ENVOY=yes": {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "yes")), nil, stuck, nil},

		"a status port above 65535 is disabled":        {stuckPod().Annotation("status.sidecar.istio.io/port", "65536"), nil, blocked(StatusPortDisabled, portDisabled), nil},
		"statusPort 0 in the proxy's config passes on": {stuckPod().Annotation("proxy.istio.io/config", "statusPort: 0"), nil, stuck, nil},
		"unreadable config passes on":                  {stuckPod().Annotation("proxy.istio.io/config", "{{"), nil, stuck, nil},

		"the exec fallback is no road out of the node's network": {stuckPod().HostNetwork(), withExec, blocked(HostNetwork, hostNetwork), nil},
		"the exec fallback is no road to an agent without Envoy": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "true")), withExec, blocked(ProxylessGRPC, proxyless), nil,
		},
		"the exec fallback makes port 0 no better for an agent without Envoy": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "true")).Annotation("status.sidecar.istio.io/port", "0"),
			withExec, blocked(ProxylessGRPC, proxyless), nil,
		},

		"a lost node changes nothing": {
			stuckPod().With(func(pod *corev1.Pod) {
				pod.Status.Reason = "NodeLost"
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionUnknown}}
			}), nil, stuck, nil,
		},
		"a pod that is still Pending can be stuck": {stuckPod().Phase(corev1.PodPending), nil, stuck, nil},
		"a pod of an unknown phase can be stuck":   {stuckPod().Phase(corev1.PodUnknown), nil, stuck, nil},

		"a grace period ends 30 s before the pod's deadline": {
			podDeadline(120), hour, answer{Wait, GracePeriod, "The grace period ends in 20s.", 20 * time.Second}, nil,
		},
		"a grace period ends at once where less is left":  {podDeadline(100), hour, stuck, nil},
		"a grace period ends at once where it has passed": {podDeadline(1), hour, stuck, nil},
		"a grace period ends 30 s before the Job's deadline": {
			stuckPod(), func(in *Input) { hour(in); in.JobDeadline = now.Add(time.Minute) },
			answer{Wait, GracePeriod, "The grace period ends in 30s.", 30 * time.Second}, nil,
		},
		"the earlier deadline counts": {
			podDeadline(120), func(in *Input) { hour(in); in.JobDeadline = now.Add(time.Minute) },
			answer{Wait, GracePeriod, "The grace period ends in 20s.", 20 * time.Second}, nil,
		},
		"a grace period ends at once where finishedAt is unknown": {stuckPod().With(noFinishedAt), hour, stuck, nil},
		"a grace period ends at once where one finishedAt of several is unknown": {
			stuckPod().With(noFinishedAt).App("other", build.Exited(0)), hour, stuck, nil,
		},
		"the finishedAt of an ignored container plays no part": {
			stuckPod().App("logs", &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
			func(in *Input) { grace(time.Minute)(in); ignoring("logs")(in) },
			answer{Wait, GracePeriod, "The grace period ends in 50s.", 50 * time.Second}, nil,
		},
		"a node whose clock is ahead holds the grace period no longer": {
			build.MakePod("pod").App("app", build.ExitedAt(0, now.Add(24*time.Hour))).Proxy(build.Running()),
			func(in *Input) { grace(time.Minute)(in); in.History.SeenFinished = now.Add(-20 * time.Second) },
			answer{Wait, GracePeriod, "The grace period ends in 40s.", 40 * time.Second}, nil,
		},

		"an ignored container that runs keeps nothing busy": {
			stuckPod().App("logs", build.Running()), ignoring("logs"), stuck,
			[]string{app, proxy, "logs Ignored Running: listed in the policy's ignoredContainers"},
		},
		"an ignored container without a status neither":  {stuckPod().App("logs", nil), ignoring("logs"), stuck, nil},
		"an ignored container that waits neither":        {stuckPod().App("logs", build.Waiting("")), ignoring("logs"), stuck, nil},
		"an ignored container that will restart neither": {stuckPod().RestartPolicy(onFailure).App("logs", build.Exited(1)), ignoring("logs"), stuck, nil},
		"ignoring istio-proxy changes nothing":           {stuckPod(), ignoring("istio-proxy"), stuck, []string{app, proxy}},
		"ignoring does not excuse an init container": {
			build.MakePod("pod").Init("migrate", build.Running()).App("app", build.Exited(0)).Proxy(build.Running()), ignoring("migrate"),
			waitsFor(InitPending, `Init container "migrate" has not succeeded yet.`), nil,
		},

		"a mode nobody knows touches nothing": {
			stuckPod(), mode("Whatever"), answer{Observe, DryRun, `istio-proxy would be asked to quit, but the mode is DryRun (policy "p").`, 0}, nil,
		},
		"no mode at all touches nothing": {
			stuckPod(), ungoverned(""), answer{Observe, DryRun, "istio-proxy would be asked to quit, but the mode is DryRun (the operator's default).", 0}, nil,
		},
		"a deadline that has passed does not keep the proxy from being asked": {podDeadline(1), nil, stuck, nil},
	} {
		t.Run(name, tc.check)
	}
}

func TestPodAnnotation(t *testing.T) {
	for name, tc := range map[string]struct {
		value     string
		want      Reason
		wantNotes []string
	}{
		"Disabled": {"Disabled", OptedOut, nil},
		"disabled": {"disabled", Stuck, []string{`The annotation jobmesh.dev/mode is "disabled" and has no effect; the only value that counts is "Disabled".`}},
		"a blank":  {"Disabled ", Stuck, []string{`The annotation jobmesh.dev/mode is "Disabled " and has no effect; the only value that counts is "Disabled".`}},
		"empty":    {"", Stuck, []string{`The annotation jobmesh.dev/mode is "" and has no effect; the only value that counts is "Disabled".`}},
		"true":     {"true", Stuck, []string{`The annotation jobmesh.dev/mode is "true" and has no effect; the only value that counts is "Disabled".`}},
		"long, and with a line end": {
			"Disabled\n\x1b[31m and more than forty characters of it", Stuck,
			[]string{`The annotation jobmesh.dev/mode is "Disabled\n\x1b[31m and more than forty chara" and has no effect; the only value that counts is "Disabled".`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(test{pod: stuckPod().Annotation("jobmesh.dev/mode", tc.value)}.input())
			if d.Reason != tc.want {
				t.Errorf("reason is %s, want %s", d.Reason, tc.want)
			}
			if diff := cmp.Diff(tc.wantNotes, d.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("without it there is nothing to say", func(t *testing.T) {
		for _, pod := range []*build.Pod{stuckPod(), stuckPod().Annotation("example.com/mode", "disabled")} {
			if d := Decide(test{pod: pod}.input()); d.Notes != nil {
				t.Errorf("notes are %q", d.Notes)
			}
		}
	})

	t.Run("Enforce does not opt in against a policy", func(t *testing.T) {
		for _, m := range []v1alpha1.Mode{v1alpha1.ModeDryRun, v1alpha1.ModeDisabled} {
			in := test{pod: stuckPod().Annotation("jobmesh.dev/mode", "Enforce"), with: mode(m)}.input()
			if d := Decide(in); d.Verdict == Quit {
				t.Errorf("the annotation Enforce made the proxy of a pod under %s quit", m)
			}
		}
	})
}

// TestPolicyThatWins goes from policies to the verdict: of equal priority and age the alphabetically first name wins.
func TestPolicyThatWins(t *testing.T) {
	pod := stuckPod().Obj()
	ranked := policy.Rank([]v1alpha1.JobMeshPolicy{
		*build.MakePolicy("b").Mode(v1alpha1.ModeEnforce).Obj(), *build.MakePolicy("a").Mode(v1alpha1.ModeDisabled).Obj(),
	})
	d := Decide(Input{Pod: pod, Settings: policy.SettingsOf(policy.Govern(pod, ranked), policy.Defaults{}), Now: now})
	if d.Reason != PolicyDisabled || d.Message != `The mode is Disabled (policy "a").` {
		t.Errorf("got %s: %s", d.Reason, d.Message)
	}
}

func TestAppFinishedAt(t *testing.T) {
	later := build.FinishedAt.Add(time.Second)
	for name, tc := range map[string]struct {
		pod  *build.Pod
		want time.Time
	}{
		"one app container":       {stuckPod(), build.FinishedAt},
		"the last of several":     {stuckPod().App("b", build.ExitedAt(1, later)).App("c", build.Exited(0)), later},
		"one still runs":          {stuckPod().App("b", build.Running()), time.Time{}},
		"one will restart":        {stuckPod().App("b", build.Exited(1), build.Restart("OnFailure")), time.Time{}},
		"one end is not known":    {stuckPod().App("b", build.ExitedAt(0, time.Time{})), time.Time{}},
		"no app container":        {build.MakePod("pod").Proxy(build.Exited(0)), time.Time{}},
		"the proxy's is no app's": {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.ExitedAt(0, later)), build.FinishedAt},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(test{pod: tc.pod}.input()).AppFinishedAt; !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestProxyFact(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *build.Pod
		want lifecycle.Fact
	}{
		"a classic proxy that runs": {stuckPod(), lifecycle.Fact{State: lifecycle.StateRunning}},
		"a classic proxy that quit": {
			build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)),
			lifecycle.Fact{State: lifecycle.StateTerminated, Final: true, FinishedAt: build.FinishedAt},
		},
		"a classic proxy without a status": {build.MakePod("pod").Proxy(nil), lifecycle.Fact{State: lifecycle.StateUnknown}},
		"a native proxy":                   {build.MakePod("pod").NativeProxy(), lifecycle.Fact{State: lifecycle.StateUnknown}},
		"a gateway":                        {build.MakePod("pod").Proxy(build.Running(), build.Args("proxy", "router")), lifecycle.Fact{State: lifecycle.StateUnknown}},
		"no proxy":                         {build.MakePod("pod"), lifecycle.Fact{State: lifecycle.StateUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ProxyFact(tc.pod.Obj())); diff != "" {
				t.Errorf("fact (-want +got):\n%s", diff)
			}
		})
	}
}
