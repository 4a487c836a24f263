// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verdict decides what to do about one pod. Decide is pure: the controller, the metrics and the kubectl plugin call it,
// and so say the same.
package verdict

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/policy"
)

// Verdict is what to do about a pod. The values are a public contract: metric label and output of the plugin.
type Verdict string

// The verdicts.
const (
	// Quit: ask the proxy to quit, now.
	Quit Verdict = "Quit"
	// Observe: the pod is stuck, and the mode forbids touching it.
	Observe Verdict = "Observe"
	// Wait: not yet.
	Wait Verdict = "Wait"
	// Blocked: the pod is stuck, and there is no road to its proxy.
	Blocked Verdict = "Blocked"
	// Ignore: none of JobMesh's business.
	Ignore Verdict = "Ignore"
)

// Reason is why. The values are a public contract: metric label, event reason and output of the plugin.
type Reason string

// The reasons, in the order in which they are looked at. Where several hold, the first one counts.
const (
	NotJobPod          Reason = "NotJobPod"
	PodFinished        Reason = "PodFinished"
	PodTerminating     Reason = "PodTerminating"
	NoProxy            Reason = "NoProxy"
	NativeSidecar      Reason = "NativeSidecar"
	Gateway            Reason = "Gateway"
	OptedOut           Reason = "OptedOut"
	PolicyDisabled     Reason = "PolicyDisabled"
	NoAppContainers    Reason = "NoAppContainers"
	ProxyTerminated    Reason = "ProxyTerminated"
	InitPending        Reason = "InitPending"
	AppStatusUnknown   Reason = "AppStatusUnknown"
	AppWaiting         Reason = "AppWaiting"
	AppRunning         Reason = "AppRunning"
	AppWillRestart     Reason = "AppWillRestart"
	ProxyNotRunning    Reason = "ProxyNotRunning"
	HostNetwork        Reason = "HostNetwork"
	StatusPortDisabled Reason = "StatusPortDisabled"
	ProxylessGRPC      Reason = "ProxylessGRPC"
	GracePeriod        Reason = "GracePeriod"
	DryRun             Reason = "DryRun"
	Backoff            Reason = "Backoff"
	Quitting           Reason = "Quitting"
	Stuck              Reason = "Stuck"
)

// Input is all that a decision rests on.
type Input struct {
	Pod      *corev1.Pod
	Settings policy.Settings
	History  History
	// JobDeadline is when the Job controller fails the pod's Job; zero where there is no deadline, or none is known.
	JobDeadline time.Time
	Now         time.Time
}

// Decision is the verdict with all that led to it.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	// Message says it in a sentence. It holds nothing of a tenant's but quoted names.
	Message string
	// RecheckAfter is when the verdict may change though the pod does not; 0 where only an event can change it.
	RecheckAfter time.Duration
	// Proxy is what was found of the pod's proxy.
	Proxy istio.Proxy
	// Containers are the pod's containers, init containers first.
	Containers []Container
	// AppFinishedAt is when the last app container finished; zero where it has not, or where that is not known.
	AppFinishedAt time.Time
	// Notes are remarks for a person, about input that has no effect.
	Notes []string
}

// IsStuck tells whether the pod's work is done while its proxy still runs, and no grace period excuses it. This is what
// alerts count.
func (d *Decision) IsStuck() bool {
	switch d.Verdict {
	case Quit, Observe, Blocked:
		return true
	case Wait:
		return d.Reason == Backoff || d.Reason == Quitting
	}
	return false
}

// Decide looks at the rules in turn; the first that holds is the verdict.
func Decide(in Input) Decision {
	f := gather(in)
	d := Decision{Proxy: f.proxy, Containers: f.containers, AppFinishedAt: f.appFinishedAt, Notes: f.notes}
	for i := range rules {
		if message, after, holds := rules[i].holds(f); holds {
			d.Verdict, d.Reason, d.Message, d.RecheckAfter = rules[i].verdict, rules[i].reason, message, after
			return d
		}
	}
	panic("verdict: the last rule always holds")
}
