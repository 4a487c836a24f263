// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle tells which containers of a pod have finished for good: terminated, and never to be started again.
//
// It follows the kubelet's own rules and nothing else. Reasons such as OOMKilled or Error play no part, save the one that the
// kubelet itself acts upon.
package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reasonRestartingAllContainers marks a container that ended, or was removed, because the whole pod starts anew
// (kubelet: RestartingAllContainers in kubelet_pods.go). It says nothing about the container's own work.
const reasonRestartingAllContainers = "RestartingAllContainers"

// ShouldRestart tells whether the kubelet starts a container again after it ended with exitCode: first the container's own
// restartPolicyRules, then its own restartPolicy, then the pod's (kubelet: ContainerShouldRestart).
//
// A kubelet too old to know the rules restarts less often than this says; the pod then waits, and nothing is cut short.
func ShouldRestart(container *corev1.Container, podPolicy corev1.RestartPolicy, exitCode int32) bool {
	if container.RestartPolicy != nil {
		if rule := matchingRule(container, exitCode); rule != nil {
			switch rule.Action {
			case corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers:
				return true
			}
		}
		switch *container.RestartPolicy {
		case corev1.ContainerRestartPolicyAlways:
			return true
		case corev1.ContainerRestartPolicyOnFailure:
			return exitCode != 0
		case corev1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch podPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default: // Always, and what the kubelet takes for it
		return true
	}
}

// findRestartWhole tells whether the kubelet is about to start every container of the pod anew, finished ones included: the
// pod says so in a condition, or a container ended with a code that its rules answer with RestartAllContainers
// (kubelet: ShouldAllContainersRestart).
func (r *Reader) findRestartWhole() bool {
	for i := range r.pod.Status.Conditions {
		if c := &r.pod.Status.Conditions[i]; c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return endsInRestartAll(r.pod.Spec.InitContainers, r.initStatuses) || endsInRestartAll(r.pod.Spec.Containers, r.statuses)
}

func endsInRestartAll(containers []corev1.Container, statuses map[string]*corev1.ContainerStatus) bool {
	for i := range containers {
		status := statuses[containers[i].Name]
		if status == nil || status.State.Terminated == nil {
			continue
		}
		rule := matchingRule(&containers[i], status.State.Terminated.ExitCode)
		if rule != nil && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
			return true
		}
	}
	return false
}

// matchingRule returns the first of the container's rules that speaks of exitCode (kubelet: FindMatchingContainerRestartRule).
func matchingRule(container *corev1.Container, exitCode int32) *corev1.ContainerRestartRule {
	for i := range container.RestartPolicyRules {
		rule := &container.RestartPolicyRules[i]
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return rule
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return rule
			}
		}
	}
	return nil
}
