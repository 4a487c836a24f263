// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// States of containers, and changes to a container.

package builders

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FinishedAt is when every built container that ended did so: a minute after Start.
var FinishedAt = Start.Add(time.Minute)

// Running is the state of a running container.
func Running() *corev1.ContainerState {
	return &corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: Start}}}
}

// Waiting is the state of a waiting container.
func Waiting(reason string) *corev1.ContainerState {
	return &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// Exited is the state of a container that ended at FinishedAt.
func Exited(code int32) *corev1.ContainerState {
	return ExitedAt(code, FinishedAt)
}

// ExitedAt is the state of a container that ended at a given time.
func ExitedAt(code int32, at time.Time) *corev1.ContainerState {
	return &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Time{Time: at}}}
}

// ExitedFor is Exited with a reason.
func ExitedFor(code int32, reason string) *corev1.ContainerState {
	state := Exited(code)
	state.Terminated.Reason = reason
	return state
}

// Always makes a container's own restartPolicy Always: an init container becomes a native sidecar.
func Always(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }

// Restart sets a container's own restartPolicy.
func Restart(policy corev1.ContainerRestartPolicy) func(*corev1.Container) {
	return func(c *corev1.Container) { c.RestartPolicy = &policy }
}

// Rule adds a restart rule for exit codes.
func Rule(action corev1.ContainerRestartRuleAction, operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{
			Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
		})
	}
}

// Env adds a variable.
func Env(name, value string) func(*corev1.Container) {
	return func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value}) }
}

// Args replaces the arguments.
func Args(args ...string) func(*corev1.Container) {
	return func(c *corev1.Container) { c.Args = args }
}
