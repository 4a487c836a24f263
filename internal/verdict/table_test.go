// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The verdict table: at least one case for every row, named after its reason.

package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// table is the public contract, in its order.
var table = []struct {
	verdict Verdict
	reason  Reason
}{
	{"Ignore", "NotJobPod"}, {"Ignore", "PodFinished"}, {"Ignore", "PodTerminating"}, {"Ignore", "NoProxy"}, {"Ignore", "NativeSidecar"},
	{"Ignore", "Gateway"}, {"Ignore", "OptedOut"}, {"Ignore", "PolicyDisabled"}, {"Ignore", "NoAppContainers"}, {"Ignore", "ProxyTerminated"},
	{"Wait", "InitPending"}, {"Wait", "AppStatusUnknown"}, {"Wait", "AppWaiting"}, {"Wait", "AppRunning"}, {"Wait", "AppWillRestart"},
	{"Wait", "ProxyNotRunning"}, {"Blocked", "HostNetwork"}, {"Blocked", "StatusPortDisabled"}, {"Blocked", "ProxylessGRPC"},
	{"Wait", "GracePeriod"}, {"Observe", "DryRun"}, {"Wait", "Backoff"}, {"Wait", "Quitting"}, {"Quit", "Stuck"},
}

// The messages that several cases share.
const (
	notJobPod       = "The pod is not controlled by a batch Job."
	noProxy         = "The pod has no istio-proxy container."
	native          = "istio-proxy is a native sidecar; the kubelet stops it when the app has finished."
	gateway         = "istio-proxy runs as a gateway (proxy router): it is the pod's own work."
	noApp           = "The pod has no containers but istio-proxy and ignored ones."
	proxyTerminated = "istio-proxy has finished for good."
	proxyNotRunning = "Every app container has finished, and istio-proxy is not running yet."
	hostNetwork     = "The pod uses the node's network: a port-forward would reach the node's own loopback."
	portDisabled    = "The pod disables the proxy's status port, and there is no exec fallback."
	proxyless       = "The agent runs without Envoy (DISABLE_ENVOY) and has no working quit."
)

// tableTests are named after the reason; what follows a colon tells several cases of a row apart.
var tableTests = map[string]test{
	"NotJobPod":                               {stuckPod().Owner("", ""), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: a ReplicaSet's":               {stuckPod().Owner("apps/v1", "ReplicaSet"), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: a Job of another API group":   {stuckPod().Owner("batch.volcano.sh/v1alpha1", "Job"), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: a Job of the core group":      {stuckPod().Owner("v1", "Job"), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: a CronJob of batch":           {stuckPod().Owner("batch/v1", "CronJob"), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: a version that is no version": {stuckPod().Owner("batch/v1/v2", "Job"), nil, ignored(NotJobPod, notJobPod), nil},
	"NotJobPod: an owner that controls nothing": {
		stuckPod().With(func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }), nil, ignored(NotJobPod, notJobPod), nil,
	},

	"PodFinished":         {stuckPod().Phase(corev1.PodSucceeded), nil, ignored(PodFinished, "The pod is Succeeded."), nil},
	"PodFinished: failed": {stuckPod().Phase(corev1.PodFailed), nil, ignored(PodFinished, "The pod is Failed."), nil},

	"PodTerminating": {stuckPod().With(deletedPod), nil, ignored(PodTerminating, "The pod is being deleted; the kubelet stops its containers."), nil},

	"NoProxy": {
		build.MakePod("pod").App("app", build.Exited(0)), nil, ignored(NoProxy, noProxy),
		[]string{"app App Terminated final: exit code 0, and the kubelet will not start it again"},
	},

	"NativeSidecar": {
		build.MakePod("pod").NativeProxy().App("app", build.Running()), nil, ignored(NativeSidecar, native),
		[]string{"istio-proxy Proxy Running: a native sidecar, which the kubelet stops after the app", "app App Running: running"},
	},

	"Gateway": {
		build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Args("proxy", "router")), nil, ignored(Gateway, gateway), nil,
	},

	"OptedOut": {
		stuckPod().Annotation("jobmesh.dev/mode", "Disabled"), nil,
		ignored(OptedOut, "The pod opted out with the annotation jobmesh.dev/mode: Disabled."), nil,
	},

	"PolicyDisabled":            {stuckPod(), mode(v1alpha1.ModeDisabled), ignored(PolicyDisabled, `The mode is Disabled (policy "p").`), nil},
	"PolicyDisabled: no policy": {stuckPod(), ungoverned(v1alpha1.ModeDisabled), ignored(PolicyDisabled, "The mode is Disabled (the operator's default)."), nil},
	"NoAppContainers":           {build.MakePod("pod").Proxy(build.Running()), nil, ignored(NoAppContainers, noApp), []string{"istio-proxy Proxy Running: running"}},
	"NoAppContainers: all ignored": {
		stuckPod(), ignoring("app"), ignored(NoAppContainers, noApp),
		[]string{"app Ignored Terminated final: listed in the policy's ignoredContainers", "istio-proxy Proxy Running: running"},
	},

	"ProxyTerminated": {
		build.MakePod("pod").App("app", build.Running()).Proxy(build.Exited(0)), nil, ignored(ProxyTerminated, proxyTerminated),
		[]string{"app App Running: running", "istio-proxy Proxy Terminated final: exit code 0, and the kubelet will not start it again"},
	},
	"ProxyTerminated: killed under Never": {
		build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(137)), nil, ignored(ProxyTerminated, proxyTerminated), nil,
	},

	"InitPending": {
		build.MakePod("pod").Phase(corev1.PodPending).Init("migrate", build.Running()).App("app", build.Waiting("PodInitializing")).Proxy(build.Waiting("PodInitializing")), nil,
		waitsFor(InitPending, `Init container "migrate" has not succeeded yet.`),
		[]string{
			"migrate Init Running: it must succeed before the app starts", "app App Waiting: waiting to start", "istio-proxy Proxy Waiting: waiting to start",
		},
	},
	"InitPending: no status": {
		build.MakePod("pod").Init("migrate", nil).App("app", build.Exited(0)).Proxy(build.Running()), nil,
		waitsFor(InitPending, `Init container "migrate" has not succeeded yet.`), nil,
	},
	"InitPending: waiting": {
		build.MakePod("pod").Init("migrate", build.Waiting("")).App("app", build.Exited(0)).Proxy(build.Running()), nil,
		waitsFor(InitPending, `Init container "migrate" has not succeeded yet.`), nil,
	},
	"InitPending: failed": {
		build.MakePod("pod").Init("first", build.Exited(0)).Init("migrate", build.Exited(1)).App("app", build.Exited(0)).Proxy(build.Running()), nil,
		waitsFor(InitPending, `Init container "migrate" has not succeeded yet.`),
		[]string{
			"first Init Terminated final: it succeeded", "migrate Init Terminated final: it must succeed before the app starts",
			"app App Terminated final: exit code 0, and the kubelet will not start it again", "istio-proxy Proxy Running: running",
		},
	},

	"AppStatusUnknown": {
		stuckPod().App("late", nil), nil, waitsFor(AppStatusUnknown, `App container "late" has no status yet.`),
		[]string{
			"app App Terminated final: exit code 0, and the kubelet will not start it again", "istio-proxy Proxy Running: running",
			"late App Unknown: no status yet, so not finished",
		},
	},

	"AppWaiting": {
		stuckPod().App("late", build.Waiting("ImagePullBackOff")), nil, waitsFor(AppWaiting, `App container "late" is waiting to start.`), nil,
	},
	"AppWaiting: in crash-loop backoff": {
		build.MakePod("pod").RestartPolicy(onFailure).App("app", build.Waiting("CrashLoopBackOff")).Proxy(build.Running()), nil,
		waitsFor(AppWaiting, `App container "app" is waiting to start.`), nil,
	},

	"AppRunning": {stuckPod().App("upload", build.Running()), nil, waitsFor(AppRunning, `App container "upload" is running.`), nil},

	"AppWillRestart": {
		build.MakePod("pod").RestartPolicy(onFailure).App("app", build.Exited(3)).Proxy(build.Running()), nil,
		waitsFor(AppWillRestart, `App container "app" ended, and the kubelet will start it again.`),
		[]string{"app App Terminated: exit code 3, and the kubelet will start it again", "istio-proxy Proxy Running: running"},
	},
	"AppWillRestart: by a rule of its own": {
		build.MakePod("pod").App("app", build.Exited(42), build.Restart(never), build.Rule("Restart", "In", 42)).Proxy(build.Running()), nil,
		waitsFor(AppWillRestart, `App container "app" ended, and the kubelet will start it again.`), nil,
	},
	"AppWillRestart: with the whole pod": {
		stuckPod().App("other", build.Exited(42), build.Restart(never), build.Rule("RestartAllContainers", "In", 42)), nil,
		waitsFor(AppWillRestart, `App container "app" ended, and the kubelet will start it again.`), nil,
	},

	"ProxyNotRunning":            {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Waiting("ContainerCreating")), nil, waitsFor(ProxyNotRunning, proxyNotRunning), nil},
	"ProxyNotRunning: no status": {build.MakePod("pod").App("app", build.Exited(0)).Proxy(nil), nil, waitsFor(ProxyNotRunning, proxyNotRunning), nil},
	"ProxyNotRunning: to restart": {
		build.MakePod("pod").RestartPolicy(onFailure).App("app", build.Exited(0)).Proxy(build.Exited(255)), nil, waitsFor(ProxyNotRunning, proxyNotRunning),
		[]string{
			"app App Terminated final: exit code 0, and the kubelet will not start it again",
			"istio-proxy Proxy Terminated: exit code 255, and the kubelet will start it again",
		},
	},

	"HostNetwork":                 {stuckPod().HostNetwork(), nil, blocked(HostNetwork, hostNetwork), nil},
	"StatusPortDisabled":          {stuckPod().Annotation("status.sidecar.istio.io/port", "0"), nil, blocked(StatusPortDisabled, portDisabled), nil},
	"StatusPortDisabled: no port": {stuckPod().Annotation("status.sidecar.istio.io/port", "http"), nil, blocked(StatusPortDisabled, portDisabled), nil},
	"ProxylessGRPC": {
		build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "true")), nil, blocked(ProxylessGRPC, proxyless), nil,
	},

	"GracePeriod": {stuckPod(), grace(time.Minute), answer{Wait, GracePeriod, "The grace period ends in 50s.", 50 * time.Second}, nil},
	"GracePeriod: from the last of several": {
		stuckPod().App("upload", build.ExitedAt(0, now.Add(-time.Second))), grace(time.Minute),
		answer{Wait, GracePeriod, "The grace period ends in 59s.", 59 * time.Second}, nil,
	},
	"GracePeriod: in DryRun too": {
		stuckPod(), func(in *Input) { mode(v1alpha1.ModeDryRun)(in); grace(time.Minute)(in) },
		answer{Wait, GracePeriod, "The grace period ends in 50s.", 50 * time.Second}, nil,
	},

	"DryRun": {
		stuckPod(), mode(v1alpha1.ModeDryRun), answer{Observe, DryRun, `istio-proxy would be asked to quit, but the mode is DryRun (policy "p").`, 0}, nil,
	},
	"DryRun: no policy": {
		stuckPod(), ungoverned(v1alpha1.ModeDryRun),
		answer{Observe, DryRun, "istio-proxy would be asked to quit, but the mode is DryRun (the operator's default).", 0}, nil,
	},

	"Backoff": {
		stuckPod(), func(in *Input) { in.History.RetryAt = now.Add(250 * time.Millisecond) },
		answer{Wait, Backoff, "An earlier attempt failed; the next is due in 250ms.", 250 * time.Millisecond}, nil,
	},

	"Quitting": {
		stuckPod(), func(in *Input) { in.History.AskAgainAt = now.Add(10 * time.Second) },
		answer{Wait, Quitting, "istio-proxy was asked to quit; if it still runs it is asked again in 10s.", 10 * time.Second}, nil,
	},

	"Stuck": {
		stuckPod(), nil, stuck,
		[]string{"app App Terminated final: exit code 0, and the kubelet will not start it again", "istio-proxy Proxy Running: running"},
	},
	"Stuck: a Job of any version": {stuckPod().Owner("batch/v2beta7", "Job"), nil, stuck, nil},
	"Stuck: no policy":            {stuckPod(), ungoverned(v1alpha1.ModeEnforce), stuck, nil},
	"Stuck: the next attempt is due": {
		stuckPod(), func(in *Input) { in.History = History{Failures: 7, RetryAt: now, AskAgainAt: now} }, stuck, nil,
	},
	"Stuck: status port 0, with the exec fallback": {stuckPod().Annotation("status.sidecar.istio.io/port", "0"), withExec, stuck, nil},
}

func TestDecide(t *testing.T) {
	for name, tc := range tableTests {
		t.Run(name, tc.check)
	}
}

func TestEveryRowHasACase(t *testing.T) {
	if len(rules) != len(table) {
		t.Fatalf("%d rules for the %d rows of the public table", len(rules), len(table))
	}
	var named []Reason
	for name, tc := range tableTests {
		reason, _, _ := strings.Cut(name, ":")
		if Reason(reason) != tc.want.Reason {
			t.Errorf("the case %q expects the reason %s", name, tc.want.Reason)
		}
		if reason == name {
			named = append(named, tc.want.Reason)
		}
	}
	for i, r := range rules {
		if diff := cmp.Diff([]string{string(table[i].verdict), string(table[i].reason)}, []string{string(r.verdict), string(r.reason)}); diff != "" {
			t.Errorf("row %d (-public +rules):\n%s", i+1, diff)
		}
		if !slices.Contains(named, r.reason) {
			t.Errorf("the reason %s has no case that is named after it", r.reason)
		}
	}
}

func TestIsStuck(t *testing.T) {
	want := []Reason{HostNetwork, StatusPortDisabled, ProxylessGRPC, DryRun, Backoff, Quitting, Stuck}
	var got []Reason
	for _, row := range table {
		if d := (Decision{Verdict: row.verdict, Reason: row.reason}); d.IsStuck() {
			got = append(got, row.reason)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons that count as stuck (-want +got):\n%s", diff)
	}
}
