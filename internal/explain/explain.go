// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain tells a person, or a script, what the operator decides about a pod and every fact that led to it. It decides
// nothing itself: the governing policy, the settings and the verdict come from the packages that the operator calls.
package explain

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/lifecycle"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// Explanation is the verdict about one pod and what led to it. Its JSON is a public contract: every key is always present, and
// what is absent or unknown is "", 0 or [].
type Explanation struct {
	Verdict verdict.Verdict `json:"verdict"`
	Reason  verdict.Reason  `json:"reason"`
	Message string          `json:"message"`
	// RecheckAfterSeconds is when the verdict may change though the pod does not, rounded up; 0 where only an event can change it.
	RecheckAfterSeconds int64 `json:"recheckAfterSeconds"`
	// AppFinishedAt is when the last app container finished (RFC 3339).
	AppFinishedAt string      `json:"appFinishedAt"`
	Pod           Pod         `json:"pod"`
	Job           Job         `json:"job"`
	Policy        Policy      `json:"policy"`
	Proxy         Proxy       `json:"proxy"`
	Containers    []Container `json:"containers"`
	// Notes are remarks about input that has no effect, or that was missing.
	Notes []string `json:"notes"`
}

// Pod names the pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Job is the Job that controls the pod.
type Job struct {
	Name string `json:"name"`
	// Deadline is when the Job's activeDeadlineSeconds end (RFC 3339). It is looked at where there is a grace period.
	Deadline string `json:"deadline"`
}

// Policy is what governs the pod. Under the operator's default mode its name is empty.
type Policy struct {
	Name               string        `json:"name"`
	Mode               v1alpha1.Mode `json:"mode"`
	GracePeriodSeconds int64         `json:"gracePeriodSeconds"`
	IgnoredContainers  []string      `json:"ignoredContainers"`
	// ExecFallback is whether exec is tried where the port-forward fails: the policy asks for it and the operator allows it.
	ExecFallback bool `json:"execFallback"`
}

// Proxy is what was found of the pod's proxy.
type Proxy struct {
	Injection istio.Injection `json:"injection"`
	// Container is its name; empty without a proxy.
	Container string `json:"container"`
	// StatusPort is 0 where the agent has no status server, or where there is no proxy.
	StatusPort int32 `json:"statusPort"`
	// StatusPortSource is the annotation or variable that the port was read from, or "default".
	StatusPortSource string `json:"statusPortSource"`
}

// Container is one container of the pod.
type Container struct {
	Name  string          `json:"name"`
	Role  verdict.Role    `json:"role"`
	State lifecycle.State `json:"state"`
	// Final is whether it has ended and the kubelet will not start it again.
	Final bool   `json:"final"`
	Why   string `json:"why"`
}

// Rules are what a pod is judged by, the pod and its Job aside.
type Rules struct {
	defaults policy.Defaults
	policies map[string][]v1alpha1.JobMeshPolicy
	ranked   map[string][]policy.Ranked
}

// NewRules makes rules of policies, which may be of several namespaces; one of none at all counts for every namespace.
func NewRules(defaults policy.Defaults, policies []v1alpha1.JobMeshPolicy) *Rules {
	r := &Rules{defaults: defaults, policies: map[string][]v1alpha1.JobMeshPolicy{}, ranked: map[string][]policy.Ranked{}}
	for i := range policies {
		r.policies[policies[i].Namespace] = append(r.policies[policies[i].Namespace], policies[i])
	}
	return r
}

// NeedsJob tells whether the verdict about the pod depends on its Job: only a deadline counts, and only for a grace period.
func (r *Rules) NeedsJob(pod *corev1.Pod) bool {
	return verdict.JobOf(pod) != nil && r.settings(pod).GracePeriod > 0
}

// Explain decides about a pod at now, without a memory of earlier attempts. job may be nil.
func (r *Rules) Explain(pod *corev1.Pod, job *batchv1.Job, now time.Time) Explanation {
	settings, deadline := r.settings(pod), policy.JobDeadline(job)
	decision := verdict.Decide(verdict.Input{Pod: pod, Settings: settings, JobDeadline: deadline, Now: now})
	e := Explanation{
		Verdict:             decision.Verdict,
		Reason:              decision.Reason,
		Message:             decision.Message,
		RecheckAfterSeconds: int64(math.Ceil(decision.RecheckAfter.Seconds())),
		AppFinishedAt:       timestamp(decision.AppFinishedAt),
		Pod:                 Pod{Namespace: pod.Namespace, Name: nameOf(pod)},
		Job:                 Job{Deadline: timestamp(deadline)},
		Policy: Policy{
			Name:               settings.Policy,
			Mode:               settings.Mode,
			GracePeriodSeconds: int64(settings.GracePeriod / time.Second),
			IgnoredContainers:  append([]string{}, settings.IgnoredContainers...),
			ExecFallback:       settings.ExecFallback,
		},
		Proxy: Proxy{
			Injection:        decision.Proxy.Injection,
			StatusPort:       decision.Proxy.StatusPort.Port,
			StatusPortSource: decision.Proxy.StatusPort.Source,
		},
		Containers: make([]Container, 0, len(decision.Containers)),
		Notes:      append([]string{}, decision.Notes...),
	}
	if owner := verdict.JobOf(pod); owner != nil {
		e.Job.Name = owner.Name
	}
	if decision.Proxy.Container != nil {
		e.Proxy.Container = decision.Proxy.Container.Name
	}
	for _, c := range decision.Containers {
		e.Containers = append(e.Containers, Container{Name: c.Name, Role: c.Role, State: c.Fact.State, Final: c.Fact.Final, Why: c.Why})
	}
	if job == nil && r.NeedsJob(pod) {
		e.Notes = append(e.Notes, fmt.Sprintf("The Job %q was not read: its activeDeadlineSeconds, if any, do not cut the grace period here.", e.Job.Name))
	}
	e.Notes = append(e.Notes, r.remarks(pod)...)
	return e
}

// remarks tell what of the policies has no effect: a fallback that is not allowed, policies that select the pod and do not govern it,
// or that cannot be read.
func (r *Rules) remarks(pod *corev1.Pod) []string {
	var remarks []string
	ranked := r.rank(pod.Namespace)
	governing := policy.Govern(pod, ranked)
	if governing != nil && governing.Spec.Quit != nil && governing.Spec.Quit.Fallback == v1alpha1.QuitFallbackExec && !r.defaults.AllowExecFallback {
		remarks = append(remarks, "The policy asks for the exec fallback, which counts only where the operator runs with --allow-exec-fallback.")
	}
	for i := range ranked {
		if p := ranked[i].Policy; p != governing && ranked[i].Selects(pod) {
			remarks = append(remarks, fmt.Sprintf("The policy %q selects the pod too, and ranks lower.", p.Name))
		}
	}
	for _, p := range r.policies[pod.Namespace] {
		if _, err := policy.Selector(&p); err != nil {
			remarks = append(remarks, fmt.Sprintf("The policy %q governs nothing, because its podSelector cannot be read.", p.Name))
		}
	}
	return remarks
}

func (r *Rules) settings(pod *corev1.Pod) policy.Settings {
	return policy.SettingsOf(policy.Govern(pod, r.rank(pod.Namespace)), r.defaults)
}

// rank ranks the policies of a namespace once.
func (r *Rules) rank(namespace string) []policy.Ranked {
	ranked, ok := r.ranked[namespace]
	if !ok {
		candidates := append([]v1alpha1.JobMeshPolicy{}, r.policies[namespace]...)
		if namespace != "" {
			for _, p := range r.policies[""] {
				p.Namespace = namespace
				candidates = append(candidates, p)
			}
		}
		ranked = policy.Rank(candidates)
		r.ranked[namespace] = ranked
	}
	return ranked
}

// nameOf is the pod's name, or the beginning of one for a pod that has not got it yet.
func nameOf(pod *corev1.Pod) string {
	if pod.Name == "" {
		return pod.GenerateName
	}
	return pod.Name
}

func timestamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
