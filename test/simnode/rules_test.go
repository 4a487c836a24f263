// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves the rules that need no cluster.

package simnode

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWillRestart(t *testing.T) {
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
		}}
	}
	for name, tc := range map[string]struct {
		pod       corev1.RestartPolicy
		container corev1.ContainerRestartPolicy
		rules     []corev1.ContainerRestartRule
		init      bool
		exitCode  int32
		want      bool
	}{
		"never, succeeded":                        {pod: corev1.RestartPolicyNever},
		"never, failed":                           {pod: corev1.RestartPolicyNever, exitCode: 1},
		"on failure, succeeded":                   {pod: corev1.RestartPolicyOnFailure},
		"on failure, failed":                      {pod: corev1.RestartPolicyOnFailure, exitCode: 1, want: true},
		"always, succeeded":                       {pod: corev1.RestartPolicyAlways, want: true},
		"always, an init container succeeded":     {pod: corev1.RestartPolicyAlways, init: true},
		"always, an init container failed":        {pod: corev1.RestartPolicyAlways, init: true, exitCode: 1, want: true},
		"the container's policy wins":             {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyOnFailure, exitCode: 1, want: true},
		"a sidecar":                               {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyAlways, init: true, want: true},
		"a rule with its code":                    {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyNever, rules: rule("In", 42), exitCode: 42, want: true},
		"a rule with another code":                {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyNever, rules: rule("In", 42), exitCode: 1},
		"a rule with all but this code":           {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyNever, rules: rule("NotIn", 0), exitCode: 0},
		"a rule with all but another code":        {pod: corev1.RestartPolicyNever, container: corev1.ContainerRestartPolicyNever, rules: rule("NotIn", 0), exitCode: 7, want: true},
		"the container's policy where none holds": {pod: corev1.RestartPolicyOnFailure, container: corev1.ContainerRestartPolicyNever, rules: rule("In", 42), exitCode: 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.Container{RestartPolicyRules: tc.rules}
			if tc.container != "" {
				spec.RestartPolicy = &tc.container
			}
			c := newContainer(spec, tc.init, Script{}, ProxyScript{})
			c.exitCode = tc.exitCode
			if got := c.willRestart(&corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tc.pod}}); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}

func TestStatusPort(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		env         string
		want        int
	}{
		"default":                      {want: 15020},
		"annotation":                   {annotations: map[string]string{"status.sidecar.istio.io/port": "15999"}, env: `{"statusPort":1}`, want: 15999},
		"annotation 0":                 {annotations: map[string]string{"status.sidecar.istio.io/port": "0"}, env: `{"statusPort":1}`},
		"annotation that is no port":   {annotations: map[string]string{"status.sidecar.istio.io/port": "70000"}},
		"mesh configuration":           {annotations: map[string]string{"proxy.istio.io/config": "concurrency: 2\nstatusPort: 15998\n"}, env: `{"statusPort":1}`, want: 15998},
		"mesh configuration without":   {annotations: map[string]string{"proxy.istio.io/config": "concurrency: 2"}, env: `{"statusPort":15997}`, want: 15997},
		"environment":                  {env: `{"statusPort":15997}`, want: 15997},
		"environment that is not YAML": {env: "\t{", want: 15020},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			proxy := &corev1.Container{Name: proxyName, Env: []corev1.EnvVar{{Name: "PROXY_CONFIG", Value: tc.env}}}
			if got := statusPort(pod, proxy); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}

func TestScripts(t *testing.T) {
	t.Run("what is written is read", func(t *testing.T) {
		pod := &corev1.Pod{}
		Script{Containers: map[string]ContainerScript{"app": {ExitCodes: []int32{1, 0}}}}.Annotate(pod)
		ProxyScript{Behaviour: BehaviourHang}.Annotate(pod)
		script, proxy, err := readScripts(pod)
		if err != nil || !slices.Equal(script.Containers["app"].ExitCodes, []int32{1, 0}) || proxy.Behaviour != BehaviourHang {
			t.Errorf("got %+v, %+v, %v", script, proxy, err)
		}
	})
	t.Run("a bare word is a behaviour", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationProxy: "panic"}}}
		if _, proxy, err := readScripts(pod); err != nil || proxy.Behaviour != BehaviourPanic {
			t.Errorf("got %+v, %v", proxy, err)
		}
	})
	t.Run("an unknown behaviour is named, and the known ones", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationProxy: "sleep"}}}
		if _, _, err := readScripts(pod); err == nil || !strings.Contains(err.Error(), `"sleep"`) || !strings.Contains(err.Error(), BehaviourDrain) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNetworkGivesEachPodItsOwnAddress(t *testing.T) {
	first, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	second, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	if first.block == second.block {
		t.Errorf("two networks share the block 127.%d", first.block)
	}
	one, two := first.take(), first.take()
	if one == two {
		t.Errorf("two Pods share %s", one)
	}
	first.give(one)
	if three := first.take(); three == one || three == two {
		t.Errorf("%s is reused before its time", three)
	}
}
