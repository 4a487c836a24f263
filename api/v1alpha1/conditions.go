// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The words of the public contract outside the schema: condition types, their reasons, and the opt-out annotation.

package v1alpha1

// Condition types of a JobMeshPolicy. Ready and Stalled are read by kstatus.
const (
	// ConditionReady is True when the policy is in force.
	ConditionReady = "Ready"
	// ConditionStalled is True when the policy cannot be in force until it is changed.
	ConditionStalled = "Stalled"
	// ConditionOverlapped is True when another policy governs pods that this one selects too.
	ConditionOverlapped = "Overlapped"
	// ConditionExecFallback is present where spec.quit.fallback is Exec, and True when the operator honours it.
	ConditionExecFallback = "ExecFallback"
)

// Reasons of the conditions.
const (
	// ReasonActive goes with Ready: the policy is in force.
	ReasonActive = "Active"
	// ReasonInvalidSelector goes with Ready and Stalled: spec.podSelector cannot be read.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonOutranked goes with Overlapped: a policy of higher rank selects some of the same pods.
	ReasonOutranked = "Outranked"
	// ReasonNoOverlap goes with Overlapped: every pod that the policy selects is governed by it.
	ReasonNoOverlap = "NoOverlap"
	// ReasonAllowed goes with ExecFallback: the operator runs with --allow-exec-fallback.
	ReasonAllowed = "Allowed"
	// ReasonNotAllowed goes with ExecFallback: the operator runs without --allow-exec-fallback.
	ReasonNotAllowed = "NotAllowed"
)

// ModeAnnotation on a pod (so on a Job's pod template) opts the pod out, with the exact value "Disabled". It cannot opt a pod in.
const ModeAnnotation = "jobmesh.dev/mode"
