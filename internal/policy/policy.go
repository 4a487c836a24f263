// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy finds the JobMeshPolicy that governs a pod, and the settings that follow from it.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// DefaultQuitTimeout bounds an attempt where the policy does not say.
const DefaultQuitTimeout = 10 * time.Second

// Defaults are the operator's own settings, from its flags.
type Defaults struct {
	// Mode holds for pods that no policy governs.
	Mode v1alpha1.Mode
	// AllowExecFallback lets policies ask for the exec fallback.
	AllowExecFallback bool
}

// Settings say how one pod is treated.
type Settings struct {
	// Policy is the name of the governing policy; "" under the operator's default mode.
	Policy string
	// Mode says what happens where the pod is stuck.
	Mode v1alpha1.Mode
	// GracePeriod is how long the proxy is left after the last app container finished.
	GracePeriod time.Duration
	// IgnoredContainers are the names of further containers that are not the app.
	IgnoredContainers []string
	// QuitTimeout bounds one whole attempt.
	QuitTimeout time.Duration
	// ExecFallback is true where the policy asks for exec and the operator allows it.
	ExecFallback bool
}

// Ranked is a policy with its selector read, ready to be asked about pods.
type Ranked struct {
	Policy   *v1alpha1.JobMeshPolicy
	selector labels.Selector
}

// Selects tells whether the policy's selector matches the pod, whoever governs it.
func (r *Ranked) Selects(pod *corev1.Pod) bool {
	return r.selector.Matches(labels.Set(pod.Labels))
}

// Rank reads the policies of one namespace and puts them in the order in which they govern: the highest priority first, then
// the older, then the alphabetically first name. A policy with a selector that cannot be read, or that is being deleted,
// governs nothing and is left out.
func Rank(policies []v1alpha1.JobMeshPolicy) []Ranked {
	ranked := make([]Ranked, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		if selector, err := Selector(p); err == nil {
			ranked = append(ranked, Ranked{Policy: p, selector: selector})
		}
	}
	slices.SortStableFunc(ranked, func(a, b Ranked) int {
		return cmp.Or(
			cmp.Compare(deref(b.Policy.Spec.Priority, 0), deref(a.Policy.Spec.Priority, 0)),
			a.Policy.CreationTimestamp.Compare(b.Policy.CreationTimestamp.Time),
			cmp.Compare(a.Policy.Name, b.Policy.Name),
		)
	})
	return ranked
}

// Selector reads a policy's podSelector; an absent or empty one selects every pod. The error names the field.
func Selector(p *v1alpha1.JobMeshPolicy) (labels.Selector, error) {
	from := p.Spec.PodSelector
	if from == nil {
		return labels.Everything(), nil
	}
	to := &metav1.LabelSelector{MatchLabels: make(map[string]string, len(from.MatchLabels))}
	for key, value := range from.MatchLabels {
		to.MatchLabels[key] = string(value)
	}
	for _, r := range from.MatchExpressions {
		values := make([]string, len(r.Values))
		for i, v := range r.Values {
			values[i] = string(v)
		}
		to.MatchExpressions = append(to.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: values})
	}
	selector, err := metav1.LabelSelectorAsSelector(to)
	if err != nil {
		return nil, fmt.Errorf("spec.podSelector: %w", err)
	}
	return selector, nil
}

// Govern returns the first of the ranked policies, all of the pod's namespace, that selects the pod; nil where none does.
func Govern(pod *corev1.Pod, ranked []Ranked) *v1alpha1.JobMeshPolicy {
	for i := range ranked {
		if ranked[i].Policy.Namespace == pod.Namespace && ranked[i].Selects(pod) {
			return ranked[i].Policy
		}
	}
	return nil
}

// SettingsOf turns the governing policy, or its absence, into settings. Absent fields have the API's defaults, so that a policy
// that never passed through an API server reads the same.
func SettingsOf(p *v1alpha1.JobMeshPolicy, defaults Defaults) Settings {
	if p == nil {
		return Settings{Mode: defaults.Mode, QuitTimeout: DefaultQuitTimeout}
	}
	settings := Settings{
		Policy:      p.Name,
		Mode:        cmp.Or(p.Spec.Mode, v1alpha1.ModeEnforce),
		GracePeriod: seconds(deref(p.Spec.GracePeriodSeconds, 0)),
		QuitTimeout: DefaultQuitTimeout,
	}
	for _, name := range p.Spec.IgnoredContainers {
		settings.IgnoredContainers = append(settings.IgnoredContainers, string(name))
	}
	if quit := p.Spec.Quit; quit != nil {
		settings.QuitTimeout = seconds(deref(quit.TimeoutSeconds, int32(DefaultQuitTimeout/time.Second)))
		settings.ExecFallback = quit.Fallback == v1alpha1.QuitFallbackExec && defaults.AllowExecFallback
	}
	return settings
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
