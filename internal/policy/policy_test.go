// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Which policy governs a pod, and what settings follow.

package policy_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func deleted(p *v1alpha1.JobMeshPolicy) *v1alpha1.JobMeshPolicy {
	p.DeletionTimestamp = &metav1.Time{Time: build.Start}
	return p
}

func selecting(name string, requirements ...v1alpha1.PodSelectorRequirement) *v1alpha1.JobMeshPolicy {
	p := build.MakePolicy(name).Obj()
	p.Spec.PodSelector = &v1alpha1.PodSelector{MatchExpressions: requirements}
	return p
}

func TestGovern(t *testing.T) {
	unreadable := selecting("unreadable", v1alpha1.PodSelectorRequirement{Key: "app", Operator: "Near"})
	unreadable.Spec.Priority = new(int32(1000))

	tests := map[string]struct {
		policies []*v1alpha1.JobMeshPolicy
		want     string
	}{
		"no policy":                 {nil, ""},
		"one that selects all":      {[]*v1alpha1.JobMeshPolicy{build.MakePolicy("all").Obj()}, "all"},
		"one that selects the pod":  {[]*v1alpha1.JobMeshPolicy{build.MakePolicy("mine").Selects("app", "report").Obj()}, "mine"},
		"one that selects another":  {[]*v1alpha1.JobMeshPolicy{build.MakePolicy("other").Selects("app", "mail").Obj()}, ""},
		"one of another namespace":  {[]*v1alpha1.JobMeshPolicy{build.MakePolicy("far").Namespace("far").Obj()}, ""},
		"one that is being deleted": {[]*v1alpha1.JobMeshPolicy{deleted(build.MakePolicy("gone").Obj())}, ""},
		"one with an unreadable selector": {
			[]*v1alpha1.JobMeshPolicy{unreadable}, "",
		},
		"the highest priority": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Age(time.Hour).Obj(), build.MakePolicy("b").Priority(1).Obj(), build.MakePolicy("c").Priority(10).Obj(),
		}, "c"},
		"an absent priority is 0": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Priority(-1).Age(time.Hour).Obj(), build.MakePolicy("b").Age(time.Minute).Obj(),
		}, "b"},
		"an absent priority equals 0": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Age(time.Minute).Obj(), build.MakePolicy("b").Priority(0).Age(time.Hour).Obj(),
		}, "b"},
		"priorities at the ends of their type": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Priority(math.MinInt32).Obj(), build.MakePolicy("b").Priority(math.MaxInt32).Obj(),
		}, "b"},
		"of equal priority the older": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Age(time.Minute).Obj(), build.MakePolicy("b").Age(time.Hour).Obj(),
		}, "b"},
		"of equal age the alphabetically first": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("c").Age(time.Hour).Obj(), build.MakePolicy("b").Age(time.Hour).Obj(), build.MakePolicy("d").Age(time.Hour).Obj(),
		}, "b"},
		"the first in rank does not select the pod": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Priority(10).Selects("app", "mail").Obj(), build.MakePolicy("b").Obj(),
		}, "b"},
		"the first in rank is being deleted": {[]*v1alpha1.JobMeshPolicy{
			deleted(build.MakePolicy("a").Priority(10).Obj()), build.MakePolicy("b").Obj(),
		}, "b"},
		"the first in rank is unreadable": {[]*v1alpha1.JobMeshPolicy{unreadable, build.MakePolicy("b").Obj()}, "b"},
		"the first in rank is of another namespace": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Priority(10).Namespace("far").Obj(), build.MakePolicy("b").Obj(),
		}, "b"},
		"a disabled policy governs too": {[]*v1alpha1.JobMeshPolicy{
			build.MakePolicy("a").Priority(10).Mode(v1alpha1.ModeDisabled).Obj(), build.MakePolicy("b").Obj(),
		}, "a"},
	}
	pod := build.MakePod("p").Label("app", "report").Obj()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				policies := []v1alpha1.JobMeshPolicy{}
				for _, p := range tc.policies {
					policies = append(policies, *p)
				}
				got := ""
				if p := policy.Govern(pod, policy.Rank(policies)); p != nil {
					got = p.Name
				}
				if got != tc.want {
					t.Errorf("governed by %q, want %q", got, tc.want)
				}
				slices.Reverse(tc.policies)
			}
		})
	}
}

func TestSelector(t *testing.T) {
	type requirements = []v1alpha1.PodSelectorRequirement
	pod := build.MakePod("p").Label("app", "report").Label("tier", "").Obj()
	const invalid = -1
	tests := map[string]struct {
		labels      map[string]v1alpha1.LabelValue
		expressions requirements
		want        int
	}{
		"empty":                           {nil, nil, 1},
		"a label that matches":            {map[string]v1alpha1.LabelValue{"app": "report"}, nil, 1},
		"a label with an empty value":     {map[string]v1alpha1.LabelValue{"tier": ""}, nil, 1},
		"a label with another value":      {map[string]v1alpha1.LabelValue{"app": "mail"}, nil, 0},
		"a label the pod lacks":           {map[string]v1alpha1.LabelValue{"team": ""}, nil, 0},
		"one of two labels":               {map[string]v1alpha1.LabelValue{"app": "report", "team": "x"}, nil, 0},
		"a label with an invalid value":   {map[string]v1alpha1.LabelValue{"app": "not valid"}, nil, invalid},
		"a label with an invalid key":     {map[string]v1alpha1.LabelValue{"not valid": "x"}, nil, invalid},
		"In, matching":                    {nil, requirements{{Key: "app", Operator: "In", Values: []v1alpha1.LabelValue{"mail", "report"}}}, 1},
		"In, not matching":                {nil, requirements{{Key: "app", Operator: "In", Values: []v1alpha1.LabelValue{"mail"}}}, 0},
		"In of a label the pod lacks":     {nil, requirements{{Key: "team", Operator: "In", Values: []v1alpha1.LabelValue{""}}}, 0},
		"In of nothing":                   {nil, requirements{{Key: "app", Operator: "In"}}, invalid},
		"NotIn, matching":                 {nil, requirements{{Key: "app", Operator: "NotIn", Values: []v1alpha1.LabelValue{"mail"}}}, 1},
		"NotIn, not matching":             {nil, requirements{{Key: "app", Operator: "NotIn", Values: []v1alpha1.LabelValue{"report"}}}, 0},
		"NotIn of a label the pod lacks":  {nil, requirements{{Key: "team", Operator: "NotIn", Values: []v1alpha1.LabelValue{"x"}}}, 1},
		"NotIn of nothing":                {nil, requirements{{Key: "app", Operator: "NotIn"}}, invalid},
		"Exists":                          {nil, requirements{{Key: "tier", Operator: "Exists"}}, 1},
		"Exists, of a label it lacks":     {nil, requirements{{Key: "team", Operator: "Exists"}}, 0},
		"Exists with values":              {nil, requirements{{Key: "tier", Operator: "Exists", Values: []v1alpha1.LabelValue{"x"}}}, invalid},
		"DoesNotExist":                    {nil, requirements{{Key: "team", Operator: "DoesNotExist"}}, 1},
		"DoesNotExist, of a label it has": {nil, requirements{{Key: "tier", Operator: "DoesNotExist"}}, 0},
		"DoesNotExist with values":        {nil, requirements{{Key: "team", Operator: "DoesNotExist", Values: []v1alpha1.LabelValue{"x"}}}, invalid},
		"an operator nobody knows":        {nil, requirements{{Key: "app", Operator: "Near"}}, invalid},
		"no operator":                     {nil, requirements{{Key: "app"}}, invalid},
		"no key":                          {nil, requirements{{Operator: "Exists"}}, invalid},
		"all conditions must hold": {map[string]v1alpha1.LabelValue{"app": "report"}, requirements{
			{Key: "tier", Operator: "Exists"}, {Key: "team", Operator: "Exists"},
		}, 0},
		"labels and conditions together": {map[string]v1alpha1.LabelValue{"app": "report"}, requirements{
			{Key: "tier", Operator: "Exists"}, {Key: "team", Operator: "DoesNotExist"},
		}, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := build.MakePolicy("policy").Obj()
			p.Spec.PodSelector = &v1alpha1.PodSelector{MatchLabels: tc.labels, MatchExpressions: tc.expressions}
			selector, err := policy.Selector(p)
			ranked := policy.Rank([]v1alpha1.JobMeshPolicy{*p})
			if tc.want == invalid {
				if err == nil || !strings.HasPrefix(err.Error(), "spec.podSelector: ") {
					t.Errorf("error is %v, want one that begins with the field", err)
				}
				if len(ranked) != 0 {
					t.Error("a policy with an unreadable selector is ranked")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := ranked[0].Selects(pod); got != (tc.want == 1) {
				t.Errorf("selected is %t by %q, want %t", got, selector, tc.want == 1)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		if ranked := policy.Rank([]v1alpha1.JobMeshPolicy{*build.MakePolicy("all").Obj()}); !ranked[0].Selects(pod) || !ranked[0].Selects(&corev1.Pod{}) {
			t.Error("a policy without a selector does not select every pod")
		}
	})
}

func TestSettingsOf(t *testing.T) {
	quit := func(q v1alpha1.Quit) *v1alpha1.JobMeshPolicy {
		p := build.MakePolicy("p").Obj()
		p.Spec.Quit = &q
		return p
	}
	enforce := func(change func(*policy.Settings)) policy.Settings {
		s := policy.Settings{Policy: "p", Mode: v1alpha1.ModeEnforce, QuitTimeout: 10 * time.Second}
		change(&s)
		return s
	}
	nothing := func(*policy.Settings) {}
	dryRun := policy.Defaults{Mode: v1alpha1.ModeDryRun}
	execAllowed := policy.Defaults{Mode: v1alpha1.ModeDryRun, AllowExecFallback: true}

	tests := map[string]struct {
		policy   *v1alpha1.JobMeshPolicy
		defaults policy.Defaults
		want     policy.Settings
	}{
		"no policy":                {nil, dryRun, policy.Settings{Mode: v1alpha1.ModeDryRun, QuitTimeout: 10 * time.Second}},
		"no policy, by default on": {nil, policy.Defaults{Mode: v1alpha1.ModeEnforce}, policy.Settings{Mode: v1alpha1.ModeEnforce, QuitTimeout: 10 * time.Second}},
		"no policy has no exec":    {nil, execAllowed, policy.Settings{Mode: v1alpha1.ModeDryRun, QuitTimeout: 10 * time.Second}},

		"every field absent": {build.MakePolicy("p").Obj(), dryRun, enforce(nothing)},
		"the policy's mode goes before the default": {
			build.MakePolicy("p").Mode(v1alpha1.ModeDisabled).Obj(), policy.Defaults{Mode: v1alpha1.ModeEnforce},
			enforce(func(s *policy.Settings) { s.Mode = v1alpha1.ModeDisabled }),
		},
		"grace period": {build.MakePolicy("p").Grace(86400).Obj(), dryRun, enforce(func(s *policy.Settings) { s.GracePeriod = 24 * time.Hour })},
		"ignored containers": {
			build.MakePolicy("p").Ignores("vault", "logs").Obj(), dryRun,
			enforce(func(s *policy.Settings) { s.IgnoredContainers = []string{"vault", "logs"} }),
		},
		"the bound on an attempt": {build.MakePolicy("p").Quit(60, "").Obj(), dryRun, enforce(func(s *policy.Settings) { s.QuitTimeout = time.Minute })},
		"an empty quit":           {quit(v1alpha1.Quit{}), execAllowed, enforce(nothing)},

		"exec asked for and allowed":   {quit(v1alpha1.Quit{Fallback: v1alpha1.QuitFallbackExec}), execAllowed, enforce(func(s *policy.Settings) { s.ExecFallback = true })},
		"exec asked for alone":         {quit(v1alpha1.Quit{Fallback: v1alpha1.QuitFallbackExec}), dryRun, enforce(nothing)},
		"exec allowed alone":           {quit(v1alpha1.Quit{Fallback: v1alpha1.QuitFallbackNone}), execAllowed, enforce(nothing)},
		"exec allowed, quit not set":   {build.MakePolicy("p").Obj(), execAllowed, enforce(nothing)},
		"a fallback that nobody knows": {quit(v1alpha1.Quit{Fallback: "Pray"}), execAllowed, enforce(nothing)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, policy.SettingsOf(tc.policy, tc.defaults)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}
