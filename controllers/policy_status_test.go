// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The status of a policy, as a table: what is known in, what is written out.

package controllers

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// conditions says a status' conditions as "Type=Status/Reason: message".
func conditionsOf(status v1alpha1.JobMeshPolicyStatus) []string {
	var all []string
	for _, c := range status.Conditions {
		all = append(all, c.Type+"="+string(c.Status)+"/"+c.Reason+": "+c.Message)
	}
	return all
}

const (
	ready     = "Ready=True/Active: The policy is in force, with mode Enforce."
	noOverlap = "Overlapped=False/NoOverlap: Every pod that this policy selects is governed by it."
)

func unreadable() *v1alpha1.JobMeshPolicy {
	p := build.MakePolicy("p").Obj()
	p.Spec.PodSelector = &v1alpha1.PodSelector{MatchExpressions: []v1alpha1.PodSelectorRequirement{{Key: "app", Operator: "Near"}}}
	return p
}

func TestConditions(t *testing.T) {
	invalid := `InvalidSelector: spec.podSelector: "Near" is not a valid label selector operator`
	cases := map[string]struct {
		policy  *v1alpha1.JobMeshPolicy
		overlap overlap
		allowed bool
		want    []string
	}{
		"all is well": {build.MakePolicy("p").Obj(), overlap{}, false, []string{ready, noOverlap}},
		"a dry run": {build.MakePolicy("p").Mode(v1alpha1.ModeDryRun).Obj(), overlap{}, false,
			[]string{"Ready=True/Active: The policy is in force, with mode DryRun.", noOverlap}},
		"disabled": {build.MakePolicy("p").Mode(v1alpha1.ModeDisabled).Obj(), overlap{}, false,
			[]string{"Ready=True/Active: The policy is in force, with mode Disabled.", noOverlap}},
		"outranked": {build.MakePolicy("p").Obj(), overlap{3, "boss"}, false,
			[]string{ready, `Overlapped=True/Outranked: 3 of the pods that this policy selects are governed by others, such as "boss".`}},
		"a selector that cannot be read": {unreadable(), overlap{}, false, []string{"Ready=False/" + invalid, "Stalled=True/" + invalid, noOverlap}},
		"exec, allowed": {build.MakePolicy("p").Quit(10, v1alpha1.QuitFallbackExec).Obj(), overlap{}, true,
			[]string{ready, noOverlap, "ExecFallback=True/Allowed: The exec fallback is honoured."}},
		"exec, not allowed": {build.MakePolicy("p").Quit(10, v1alpha1.QuitFallbackExec).Obj(), overlap{}, false,
			[]string{ready, noOverlap, "ExecFallback=False/NotAllowed: The exec fallback is not honoured: the operator must run with --allow-exec-fallback."}},
		"no exec, though allowed": {build.MakePolicy("p").Quit(10, v1alpha1.QuitFallbackNone).Obj(), overlap{}, true, []string{ready, noOverlap}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.policy.Generation = 7
			got := statusOf(tc.policy, tc.overlap, ledger.Counts{}, ledger.Reaps{}, policy.Defaults{AllowExecFallback: tc.allowed}, benchTime)
			if diff := cmp.Diff(tc.want, conditionsOf(got)); diff != "" {
				t.Errorf("Conditions (-want +got):\n%s", diff)
			}
			for _, c := range got.Conditions {
				if c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(benchTime) {
					t.Errorf("%s: generation %d, last transition %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if got.ObservedGeneration == nil || *got.ObservedGeneration != 7 {
				t.Errorf("Observed generation %v", got.ObservedGeneration)
			}
		})
	}
}

func TestConditionsThatNoLongerHold(t *testing.T) {
	p := unreadable()
	p.Spec.Quit = &v1alpha1.Quit{Fallback: v1alpha1.QuitFallbackExec}
	p.Status = statusOf(p, overlap{1, "boss"}, ledger.Counts{}, ledger.Reaps{}, policy.Defaults{}, benchTime)
	p.Spec = v1alpha1.JobMeshPolicySpec{}
	later := benchTime.Add(time.Hour)
	p.Status = statusOf(p, overlap{}, ledger.Counts{}, ledger.Reaps{}, policy.Defaults{}, later)
	if diff := cmp.Diff([]string{ready, noOverlap}, conditionsOf(p.Status)); diff != "" {
		t.Errorf("Conditions (-want +got):\n%s", diff)
	}
	again := statusOf(p, overlap{}, ledger.Counts{}, ledger.Reaps{}, policy.Defaults{}, later.Add(time.Hour))
	if diff := cmp.Diff(p.Status, again); diff != "" {
		t.Errorf("Nothing changed, and the status did (-before +after):\n%s", diff)
	}
}

func TestCountersAddUp(t *testing.T) {
	p := build.MakePolicy("p").Obj()
	at := func(seconds int) time.Time {
		return benchTime.Add(time.Duration(seconds)*time.Second + 300*time.Millisecond)
	}
	steps := []struct {
		counts   ledger.Counts
		reaps    ledger.Reaps
		want     int64
		wantLast time.Time // zero: never
	}{
		{ledger.Counts{}, ledger.Reaps{}, 0, time.Time{}},
		{ledger.Counts{Selected: 5, Stuck: 3, Blocked: 1}, ledger.Reaps{Pods: 2, Last: at(1)}, 2, benchTime.Add(time.Second)},
		{ledger.Counts{Selected: 3, Stuck: 1, Blocked: 1}, ledger.Reaps{}, 2, benchTime.Add(time.Second)},
		{ledger.Counts{}, ledger.Reaps{Pods: 3, Last: at(9)}, 5, benchTime.Add(9 * time.Second)},
	}
	for i, step := range steps {
		before := p.Status.DeepCopy()
		status := statusOf(p, overlap{}, step.counts, step.reaps, policy.Defaults{}, benchTime)
		if diff := cmp.Diff(*before, p.Status); diff != "" {
			t.Errorf("Step %d changed the policy that it was given:\n%s", i, diff)
		}
		p.Status = status
		got := ledger.Counts{Selected: *status.Pods.Selected, Stuck: *status.Pods.Stuck, Blocked: *status.Pods.Blocked}
		if got != step.counts || *status.ReapedPods != step.want {
			t.Errorf("Step %d: %+v, %d reaped; want %+v, %d", i, got, *status.ReapedPods, step.counts, step.want)
		}
		if last := status.LastReapTime; (last == nil) != step.wantLast.IsZero() || last != nil && !last.Time.Equal(step.wantLast) {
			t.Errorf("Step %d: last reap %v, want %v", i, last, step.wantLast)
		}
	}
}

func TestFindOverlaps(t *testing.T) {
	pods := []corev1.Pod{
		*stuck("a").Label("app", "some").Obj(), *stuck("b").Label("app", "some").Label("tier", "gold").Obj(), *stuck("c").Obj(),
		*build.MakePod("web").Owner("apps/v1", "ReplicaSet").Label("app", "some").Obj(),
	}
	all, app, gold := build.MakePolicy("all"), build.MakePolicy("app").Selects("app", "some"), build.MakePolicy("gold").Selects("tier", "gold")
	bad := *unreadable()
	bad.Name = "bad"
	deleted := *build.MakePolicy("deleted").Priority(100).Obj()
	deleted.DeletionTimestamp = &metav1.Time{Time: benchTime}
	of := func(list ...*build.Policy) []v1alpha1.JobMeshPolicy {
		var policies []v1alpha1.JobMeshPolicy
		for _, p := range list {
			policies = append(policies, *p.Obj())
		}
		return policies
	}
	cases := map[string]struct {
		policy   *v1alpha1.JobMeshPolicy
		policies []v1alpha1.JobMeshPolicy
		want     overlap
	}{
		"alone":                         {all.Obj(), of(all), overlap{}},
		"the winner":                    {all.Obj(), of(all, app), overlap{}},
		"the loser":                     {app.Obj(), of(all, app), overlap{2, "all"}},
		"the loser to several":          {all.Obj(), of(all, app.Priority(1), gold.Priority(2)), overlap{2, "app"}},
		"one that cannot be read":       {&bad, append(of(all, app), bad), overlap{}},
		"one that loses to no bad one":  {all.Obj(), append(of(all), bad), overlap{}},
		"one that loses to no dead one": {all.Obj(), append(of(all), deleted), overlap{}},
		"one that is not listed yet":    {all.Obj(), of(app, gold), overlap{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in any order of the cache
				if got := findOverlaps(tc.policies, pods)[tc.policy.Name]; got != tc.want {
					t.Errorf("Got %+v, want %+v", got, tc.want)
				}
				pods[0], pods[1], pods[2], pods[3] = pods[3], pods[2], pods[1], pods[0]
			}
		})
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	if got := bounded("short"); got != "short" {
		t.Errorf("Got %q", got)
	}
	got := bounded("x" + strings.Repeat("é", 1000))
	if len(got) > 520 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
		t.Errorf("Got %d bytes, valid %v, end %q", len(got), utf8.ValidString(got), got[len(got)-8:])
	}
}

// TestAForeignStatusDoesNoHarm: whoever may write a status cannot make it one that the operator fails to write.
func TestAForeignStatusDoesNoHarm(t *testing.T) {
	p := build.MakePolicy("reap").Obj()
	p.Status.ReapedPods = new(int64(math.MaxInt64))
	for i := range 8 {
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Foreign%d", i)})
	}
	status := statusOf(p, overlap{}, ledger.Counts{}, ledger.Reaps{Pods: 2, Last: build.Start}, policy.Defaults{}, build.Start)
	if *status.ReapedPods != math.MaxInt64 {
		t.Errorf("%d reaped pods", *status.ReapedPods)
	}
	if len(status.Conditions) != 2 {
		t.Errorf("%d conditions, want Ready and Overlapped", len(status.Conditions))
	}
	p.Status.ReapedPods = new(int64(-5))
	if status = statusOf(p, overlap{}, ledger.Counts{}, ledger.Reaps{Pods: 2, Last: build.Start}, policy.Defaults{}, build.Start); *status.ReapedPods != 2 {
		t.Errorf("%d reaped pods after a negative number", *status.ReapedPods)
	}
}
