// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The status of a policy, computed: pure functions from what is known to what is written.

package controllers

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/policy"
)

var ownConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled, v1alpha1.ConditionOverlapped, v1alpha1.ConditionExecFallback}

func statusOf(p *v1alpha1.JobMeshPolicy, o overlap, counts ledger.Counts, reaps ledger.Reaps, defaults policy.Defaults, now time.Time) v1alpha1.JobMeshPolicyStatus {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration = &p.Generation
	status.Pods = &v1alpha1.PodCounts{Selected: &counts.Selected, Stuck: &counts.Stuck, Blocked: &counts.Blocked}
	status.ReapedPods = new(reaps.Pods)
	if before := p.Status.ReapedPods; before != nil && *before > 0 {
		*status.ReapedPods = min(*before, math.MaxInt64-reaps.Pods) + reaps.Pods
	}
	// Conditions of others have no place here, and enough of them would make the status one that cannot be written.
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool { return !slices.Contains(ownConditions, c.Type) })
	if reaps.Pods > 0 {
		status.LastReapTime = &metav1.Time{Time: reaps.Last.Truncate(time.Second)}
	}
	set := func(kind string, is bool, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: conditionStatus(is), Reason: reason, Message: message,
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
		})
	}
	if _, err := policy.Selector(p); err != nil {
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonInvalidSelector, bounded(err.Error()))
		set(v1alpha1.ConditionStalled, true, v1alpha1.ReasonInvalidSelector, bounded(err.Error()))
	} else {
		set(v1alpha1.ConditionReady, true, v1alpha1.ReasonActive, fmt.Sprintf("The policy is in force, with mode %s.", policy.SettingsOf(p, defaults).Mode))
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
	}
	if o.pods > 0 {
		set(v1alpha1.ConditionOverlapped, true, v1alpha1.ReasonOutranked,
			fmt.Sprintf("%d of the pods that this policy selects are governed by others, such as %q.", o.pods, o.winner))
	} else {
		set(v1alpha1.ConditionOverlapped, false, v1alpha1.ReasonNoOverlap, "Every pod that this policy selects is governed by it.")
	}
	switch {
	case p.Spec.Quit == nil || p.Spec.Quit.Fallback != v1alpha1.QuitFallbackExec:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionExecFallback)
	case defaults.AllowExecFallback:
		set(v1alpha1.ConditionExecFallback, true, v1alpha1.ReasonAllowed, "The exec fallback is honoured.")
	default:
		set(v1alpha1.ConditionExecFallback, false, v1alpha1.ReasonNotAllowed,
			"The exec fallback is not honoured: the operator must run with --allow-exec-fallback.")
	}
	return status
}

func conditionStatus(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// bounded cuts a message to what people read; the API takes 32 KiB.
func bounded(message string) string {
	const most = 512
	if len(message) > most {
		return strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
