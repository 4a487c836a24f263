// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The kubelet's rule for one container: rules, then its own policy, then the pod's.

package lifecycle_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/lifecycle"
	build "github.com/jobmesh/jobmesh/test/builders"
)

const (
	restart    = corev1.ContainerRestartRuleActionRestart
	restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
	in         = corev1.ContainerRestartRuleOnExitCodesOpIn
	notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn
	always     = corev1.ContainerRestartPolicyAlways
	onFailure  = corev1.ContainerRestartPolicyOnFailure
	never      = corev1.ContainerRestartPolicyNever
)

func container(changes ...func(*corev1.Container)) *corev1.Container {
	c := &corev1.Container{Name: "app"}
	for _, change := range changes {
		change(c)
	}
	return c
}

// ruleWithoutCodes adds a rule that speaks of nothing, which only an API server of the future would let pass.
func ruleWithoutCodes(c *corev1.Container) {
	c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{Action: restart})
}

func TestShouldRestart(t *testing.T) {
	// The exit codes after which the kubelet starts the container again, of 0, 1, 3, 42 and 137, under each of the pod's
	// policies: "" stands for none of the three, which the kubelet takes for Always.
	type answers map[corev1.RestartPolicy][]int32
	codes := []int32{0, 1, 3, 42, 137}
	failures := []int32{1, 3, 42, 137}
	same := func(restarted ...int32) answers {
		return answers{"Always": restarted, "OnFailure": restarted, "Never": restarted, "": restarted}
	}
	podDecides := answers{"Always": codes, "OnFailure": failures, "Never": nil, "": codes}

	tests := map[string]struct {
		container *corev1.Container
		want      answers
	}{
		"the pod decides":                                      {container(), podDecides},
		"the container's Always beats the pod's":               {container(build.Restart(always)), same(codes...)},
		"the container's OnFailure beats the pod's":            {container(build.Restart(onFailure)), same(failures...)},
		"the container's Never beats the pod's":                {container(build.Restart(never)), same()},
		"a container policy nobody knows leaves it to the pod": {container(build.Restart("Sometimes")), podDecides},

		"In restarts the listed codes": {container(build.Restart(never), build.Rule(restart, in, 3, 42)), same(3, 42)},
		"In may list success":          {container(build.Restart(never), build.Rule(restart, in, 0)), same(0)},
		"In of no code matches none":   {container(build.Restart(never), build.Rule(restart, in)), same()},
		"NotIn restarts the others":    {container(build.Restart(never), build.Rule(restart, notIn, 3, 42)), same(0, 1, 137)},
		"NotIn of no code matches all": {container(build.Restart(never), build.Rule(restart, notIn)), same(codes...)},

		"no rule matches: OnFailure decides": {container(build.Restart(onFailure), build.Rule(restart, in, 0)), same(codes...)},
		"no rule matches: Always decides":    {container(build.Restart(always), build.Rule(restart, in, 3)), same(codes...)},
		"RestartAllContainers restarts":      {container(build.Restart(never), build.Rule(restartAll, in, 42)), same(42)},
		"several rules": {
			container(build.Restart(never), build.Rule(restart, in, 3), build.Rule(restartAll, in, 42)), same(3, 42),
		},
		"the first match wins, though its action means nothing": {
			container(build.Restart(never), build.Rule("Ponder", in, 3), build.Rule(restart, in, 3, 42)), same(42),
		},
		"an action that means nothing leaves it to the container's policy": {
			container(build.Restart(onFailure), build.Rule("Ponder", notIn)), same(failures...),
		},
		"an operator that means nothing matches nothing": {
			container(build.Restart(never), build.Rule(restart, "Above", 1), build.Rule(restart, in, 3)), same(3),
		},
		"a rule without exit codes matches nothing": {
			container(build.Restart(never), ruleWithoutCodes, build.Rule(restart, in, 3)), same(3),
		},
		"rules without a container policy are not looked at": {
			container(build.Rule(restart, notIn), build.Rule(restartAll, in, 42)), podDecides,
		},
		"rules before a container policy nobody knows": {
			container(build.Restart("Sometimes"), build.Rule(restart, in, 0)),
			answers{"Always": codes, "OnFailure": codes, "Never": {0}, "": codes},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := answers{}
			for podPolicy := range tc.want {
				got[podPolicy] = nil
				for _, code := range codes {
					if lifecycle.ShouldRestart(tc.container, podPolicy, code) {
						got[podPolicy] = append(got[podPolicy], code)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("exit codes restarted (-want +got):\n%s", diff)
			}
		})
	}
}

// Exit codes are not always 0 to 255: runtimes report negative ones, and Windows reports 32 bits.
func TestShouldRestartOddExitCodes(t *testing.T) {
	for _, code := range []int32{-1, 255, 256, math.MaxInt32, math.MinInt32} {
		if lifecycle.ShouldRestart(container(), corev1.RestartPolicyNever, code) {
			t.Errorf("exit code %d is started again under Never", code)
		}
		if !lifecycle.ShouldRestart(container(), corev1.RestartPolicyOnFailure, code) {
			t.Errorf("exit code %d is not started again under OnFailure", code)
		}
		if !lifecycle.ShouldRestart(container(build.Restart(onFailure)), corev1.RestartPolicyNever, code) {
			t.Errorf("exit code %d is not started again under the container's OnFailure", code)
		}
	}
}
