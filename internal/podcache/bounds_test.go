// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a tenant writes into a pod must not fill the operator's memory, nor change what is decided.

package podcache

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// TestLongTextsAreKeptShort writes much into every field that is kept. The decision stays the same.
func TestLongTextsAreKeptShort(t *testing.T) {
	comment := "# " + strings.Repeat("x", 12<<10) + "\n"
	tests := map[string]*build.Pod{
		"proxy config":           build.MakePod("p").Annotation("proxy.istio.io/config", comment+"statusPort: 15098\nterminationDrainDuration: 20s"),
		"proxy config, no port":  build.MakePod("p").Annotation("proxy.istio.io/config", comment),
		"proxy config, too long": build.MakePod("p").Annotation("proxy.istio.io/config", strings.Repeat(comment, 4)+"statusPort: 15098"),
		"status port":            build.MakePod("p").Annotation("status.sidecar.istio.io/port", strings.Repeat("0", 200<<10)+"15021"),
		"no status port":         build.MakePod("p").Annotation("status.sidecar.istio.io/port", strings.Repeat("x", 200<<10)),
		"mode":                   build.MakePod("p").Annotation("jobmesh.dev/mode", strings.Repeat("\u20ac\x01", 50<<10)),
		"mode, short characters": build.MakePod("p").Annotation("jobmesh.dev/mode", strings.Repeat("x", 45)),
		"mode, long characters":  build.MakePod("p").Annotation("jobmesh.dev/mode", strings.Repeat("\u20ac", 14)),
	}
	for name, pod := range tests {
		t.Run(name, func(t *testing.T) { checkBounded(t, pod.App("app", build.Exited(0)).Proxy(build.Running()).Obj()) })
	}
	proxies := map[string]func(*corev1.Container){
		"variable": build.Env("PROXY_CONFIG", `{"statusPort": 15097, "x": "`+strings.Repeat("x", 12<<10)+`"}`),
		"no truth": build.Env("DISABLE_ENVOY", strings.Repeat("true", 50<<10)),
		"many variables": func(c *corev1.Container) {
			for i := range 5000 {
				build.Env("PROXY_CONFIG", fmt.Sprintf("statusPort: %d", 15000+i))(c)
			}
		},
		"long arguments":  build.Args("proxy", "sidecar", strings.Repeat("x", 200<<10)),
		"many arguments":  build.Args(slices.Concat([]string{"proxy"}, slices.Repeat([]string{"-v"}, 50_000), []string{"router"})...),
		"gateway, hidden": build.Args(slices.Concat(slices.Repeat([]string{""}, 50_000), []string{"proxy", "router"})...),
	}
	for name, change := range proxies {
		t.Run(name, func(t *testing.T) {
			checkBounded(t, build.MakePod("p").App("app", build.Exited(0)).Proxy(build.Running(), change).Obj())
		})
	}
}

func checkBounded(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	kept := Strip(pod)
	if size := encodedSize(t, kept); size > 8<<10 {
		t.Errorf("%d bytes of the pod are kept", size)
	}
	want, got := decided(pod), decided(kept)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The decision differs (-want +got):\n%s", diff)
	}
}

// decided leaves out the container of the proxy, of which less is kept.
func decided(pod *corev1.Pod) verdict.Decision {
	d := verdict.Decide(verdict.Input{Pod: pod, Settings: policy.Settings{Mode: "Enforce"}, Now: build.FinishedAt})
	d.Proxy.Container = nil
	return d
}

func encodedSize(t *testing.T, object any) int {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// TestCountsAreBounded keeps some of very many things, the proxy always among them.
func TestCountsAreBounded(t *testing.T) {
	pod := build.MakePod("p")
	for i := range 2000 {
		pod.Label(fmt.Sprintf("example.com/%0200d", i), strings.Repeat("v", 63))
		pod.App(fmt.Sprintf("app-%d", i), build.Exited(0), func(c *corev1.Container) {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: make([]int32, 5000)}}}
		})
	}
	pod.Proxy(build.Running())
	kept := Strip(pod.Obj())
	if size := encodedSize(t, kept); size > 64<<10 {
		t.Errorf("%d bytes of the pod are kept", size)
	}
	if len(kept.Spec.Containers) != maxContainers+1 || len(kept.Status.ContainerStatuses) != maxContainers+1 || len(kept.Labels) != maxLabels {
		t.Errorf("%d containers, %d statuses and %d labels are kept", len(kept.Spec.Containers), len(kept.Status.ContainerStatuses), len(kept.Labels))
	}
	if _, first := kept.Labels["example.com/"+fmt.Sprintf("%0200d", 0)]; !first {
		t.Error("The first label by name is not kept")
	}
	if d := decided(kept); d.Proxy.Injection != "Classic" {
		t.Errorf("The proxy was lost: %s", d.Reason)
	}
}
