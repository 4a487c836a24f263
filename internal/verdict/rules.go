// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The verdict table: every rule in its order, one entry each.

package verdict

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/lifecycle"
)

// rule is one row of the table. holds returns the message, and how long until the rule may no longer hold (0: until an event).
type rule struct {
	verdict Verdict
	reason  Reason
	holds   func(*facts) (message string, after time.Duration, holds bool)
}

var rules = []rule{
	// Not a pod that JobMesh is for.
	{Ignore, NotJobPod, when(func(f *facts) bool { return !f.ofJob }, "The pod is not controlled by a batch Job.")},
	{Ignore, PodFinished, func(f *facts) (string, time.Duration, bool) {
		phase := f.in.Pod.Status.Phase
		return fmt.Sprintf("The pod is %s.", phase), 0, phase == corev1.PodSucceeded || phase == corev1.PodFailed
	}},
	{Ignore, PodTerminating, when(func(f *facts) bool { return f.in.Pod.DeletionTimestamp != nil },
		"The pod is being deleted; the kubelet stops its containers.")},
	{Ignore, NoProxy, when(func(f *facts) bool { return f.proxy.Injection == istio.InjectionNone },
		"The pod has no istio-proxy container.")},
	{Ignore, NativeSidecar, when(func(f *facts) bool { return f.proxy.Injection == istio.InjectionNative },
		"istio-proxy is a native sidecar; the kubelet stops it when the app has finished.")},
	{Ignore, Gateway, when(func(f *facts) bool { return f.proxy.Injection == istio.InjectionGateway },
		"istio-proxy runs as a gateway (proxy router): it is the pod's own work.")},
	{Ignore, OptedOut, when(func(f *facts) bool {
		return f.in.Pod.Annotations[v1alpha1.ModeAnnotation] == string(v1alpha1.ModeDisabled)
	}, "The pod opted out with the annotation "+v1alpha1.ModeAnnotation+": Disabled.")},
	{Ignore, PolicyDisabled, func(f *facts) (string, time.Duration, bool) {
		return "The mode is Disabled (" + f.governor() + ").", 0, f.in.Settings.Mode == v1alpha1.ModeDisabled
	}},
	{Ignore, NoAppContainers, when(func(f *facts) bool { return f.apps == 0 },
		"The pod has no containers but istio-proxy and ignored ones.")},
	{Ignore, ProxyTerminated, when(func(f *facts) bool { return f.proxyFact.Final }, "istio-proxy has finished for good.")},

	// The app may still run, or run again.
	{Wait, InitPending, about(initPending, "Init container %q has not succeeded yet.")},
	{Wait, AppStatusUnknown, about(appIn(lifecycle.StateUnknown), "App container %q has no status yet.")},
	{Wait, AppWaiting, about(appIn(lifecycle.StateWaiting), "App container %q is waiting to start.")},
	{Wait, AppRunning, about(appIn(lifecycle.StateRunning), "App container %q is running.")},
	{Wait, AppWillRestart, about(appWillRestart, "App container %q ended, and the kubelet will start it again.")},
	{Wait, ProxyNotRunning, when(func(f *facts) bool { return f.proxyFact.State != lifecycle.StateRunning },
		"Every app container has finished, and istio-proxy is not running yet.")},

	// Every app container has finished for good, and the proxy runs: the pod is stuck.
	{Blocked, HostNetwork, when(func(f *facts) bool { return f.in.Pod.Spec.HostNetwork },
		"The pod uses the node's network: a port-forward would reach the node's own loopback.")},
	{Blocked, StatusPortDisabled, when(func(f *facts) bool { return f.proxy.StatusPort.Port == 0 && !f.in.Settings.ExecFallback },
		"The pod disables the proxy's status port, and there is no exec fallback.")},
	{Blocked, ProxylessGRPC, when(func(f *facts) bool { return f.proxy.Proxyless },
		"The agent runs without Envoy (DISABLE_ENVOY) and has no working quit.")},
	{Wait, GracePeriod, until(func(f *facts) time.Duration { return f.graceLeft }, "The grace period ends in %s.")},
	{Observe, DryRun, func(f *facts) (string, time.Duration, bool) {
		return "istio-proxy would be asked to quit, but the mode is DryRun (" + f.governor() + ").", 0, f.in.Settings.Mode != v1alpha1.ModeEnforce
	}},
	{Wait, Backoff, until(func(f *facts) time.Duration { return f.in.History.RetryAt.Sub(f.in.Now) },
		"An earlier attempt failed; the next is due in %s.")},
	{Wait, Quitting, until(func(f *facts) time.Duration { return f.in.History.AskAgainAt.Sub(f.in.Now) },
		"istio-proxy was asked to quit; if it still runs it is asked again in %s.")},
	{Quit, Stuck, when(func(*facts) bool { return true }, "Every app container has finished for good, and istio-proxy still runs.")},
}

// when makes a rule with a fixed message.
func when(holds func(*facts) bool, message string) func(*facts) (string, time.Duration, bool) {
	return func(f *facts) (string, time.Duration, bool) { return message, 0, holds(f) }
}

// about makes a rule that holds because of one container, which the message names.
func about(culprit func(Container) bool, format string) func(*facts) (string, time.Duration, bool) {
	return func(f *facts) (string, time.Duration, bool) {
		for i := range f.containers {
			if culprit(f.containers[i]) {
				return fmt.Sprintf(format, f.containers[i].Name), 0, true
			}
		}
		return "", 0, false
	}
}

// until makes a rule that holds while time is left, and says how much.
func until(left func(*facts) time.Duration, format string) func(*facts) (string, time.Duration, bool) {
	return func(f *facts) (string, time.Duration, bool) {
		after := left(f)
		if after <= 0 {
			return "", 0, false
		}
		return fmt.Sprintf(format, after.Round(10*time.Millisecond)), after, true
	}
}

func initPending(c Container) bool {
	return c.Role == RoleInit && !(c.Fact.State == lifecycle.StateTerminated && c.Fact.ExitCode == 0)
}

func appIn(state lifecycle.State) func(Container) bool {
	return func(c Container) bool { return c.Role == RoleApp && c.Fact.State == state }
}

func appWillRestart(c Container) bool { return c.Role == RoleApp && !c.Fact.Final }
