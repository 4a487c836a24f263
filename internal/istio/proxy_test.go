// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Which container is the proxy, how it was injected, and whether it has an Envoy.

package istio_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func command(words ...string) func(*corev1.Container) {
	return func(c *corev1.Container) { c.Command = words }
}

func TestInjection(t *testing.T) {
	ephemeral := func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}},
		}
	}
	const annotation = "sidecar.istio.io/status"

	tests := map[string]struct {
		pod  *build.Pod
		want istio.Injection
		// wantIn is where the proxy was found: "containers", "initContainers" or nowhere.
		wantIn string
	}{
		"no proxy":             {build.MakePod("p").App("app", build.Running()), istio.InjectionNone, ""},
		"no containers":        {build.MakePod("p"), istio.InjectionNone, ""},
		"classic":              {build.MakePod("p").App("app", build.Running()).Proxy(build.Running()), istio.InjectionClassic, "containers"},
		"classic, proxy first": {build.MakePod("p").Proxy(build.Running()).App("app", build.Running()), istio.InjectionClassic, "containers"},
		"native":               {build.MakePod("p").NativeProxy().App("app", build.Running()), istio.InjectionNative, "initContainers"},
		"gateway":              {build.MakePod("p").Proxy(build.Running(), build.Args("proxy", "router")), istio.InjectionGateway, "containers"},

		"an init container that merely bears the name": {
			build.MakePod("p").Init("istio-proxy", build.Exited(0)).App("app", build.Running()), istio.InjectionNone, "",
		},
		"an init container that merely bears the name, with a policy that is not Always": {
			build.MakePod("p").Init("istio-proxy", build.Exited(0), build.Restart(corev1.ContainerRestartPolicyOnFailure)).App("app", build.Running()), istio.InjectionNone, "",
		},
		"an init container of the name beside a classic proxy": {
			build.MakePod("p").Init("istio-proxy", build.Exited(0)).App("app", build.Running()).Proxy(build.Running()), istio.InjectionClassic, "containers",
		},
		"classic goes before native": {build.MakePod("p").NativeProxy().App("app", build.Running()).Proxy(build.Running()), istio.InjectionClassic, "containers"},
		"an ephemeral container that merely bears the name": {
			build.MakePod("p").App("app", build.Running()).With(ephemeral), istio.InjectionNone, "",
		},
		"istio-init alone is ambient's or a CNI's affair": {
			build.MakePod("p").Init("istio-init", build.Exited(0)).App("app", build.Running()), istio.InjectionNone, "",
		},
		"another container with a similar name": {build.MakePod("p").App("istio-proxy-2", build.Running()), istio.InjectionNone, ""},
		"the injector's annotation claims a proxy that is not there": {
			build.MakePod("p").App("app", build.Running()).Annotation(annotation, `{"containers":["istio-proxy"],"initContainers":null}`), istio.InjectionNone, "",
		},
		"the injector's annotation denies a proxy that is there": {
			build.MakePod("p").App("app", build.Running()).Proxy(build.Running()).Annotation(annotation, `{"containers":null,"initContainers":["istio-proxy"]}`),
			istio.InjectionClassic, "containers",
		},
		"the injector's annotation is garbage": {
			build.MakePod("p").App("app", build.Running()).Proxy(build.Running()).Annotation(annotation, `{`), istio.InjectionClassic, "containers",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			got := istio.Inspect(pod)
			if got.Injection != tc.want {
				t.Errorf("injection is %s, want %s", got.Injection, tc.want)
			}
			if in := whereIs(pod, got.Container); in != tc.wantIn {
				t.Errorf("found in %q, want %q", in, tc.wantIn)
			}
		})
	}
}

// whereIs tells which of the pod's lists holds this very container.
func whereIs(pod *corev1.Pod, c *corev1.Container) string {
	for i := range pod.Spec.Containers {
		if c == &pod.Spec.Containers[i] {
			return "containers"
		}
	}
	for i := range pod.Spec.InitContainers {
		if c == &pod.Spec.InitContainers[i] {
			return "initContainers"
		}
	}
	return ""
}

func TestRole(t *testing.T) {
	gateway, classic := istio.InjectionGateway, istio.InjectionClassic
	tests := map[string]struct {
		command, args []string
		want          istio.Injection
	}{
		"as injected":                      {nil, []string{"proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"}, classic},
		"router":                           {nil, []string{"proxy", "router", "--domain", "x"}, gateway},
		"router in the command":            {[]string{"/usr/local/bin/pilot-agent", "proxy", "router"}, nil, gateway},
		"split between command and args":   {[]string{"/usr/local/bin/pilot-agent", "proxy"}, []string{"router"}, gateway},
		"flags before the role":            {nil, []string{"proxy", "--proxyLogLevel=warning", "--concurrency=2", "router"}, gateway},
		"flags before proxy":               {nil, []string{"--log_as_json", "proxy", "router"}, gateway},
		"flags between, role sidecar":      {nil, []string{"proxy", "--log_as_json", "sidecar"}, classic},
		"router after the role":            {nil, []string{"proxy", "sidecar", "router"}, classic},
		"router before proxy":              {nil, []string{"router", "proxy", "sidecar"}, classic},
		"router as part of a word":         {nil, []string{"proxy", "router2"}, classic},
		"a router flag is no role":         {nil, []string{"proxy", "--router", "sidecar"}, classic},
		"proxy without a role":             {nil, []string{"proxy"}, classic},
		"proxy with flags alone":           {nil, []string{"proxy", "--x"}, classic},
		"neither command nor args":         {nil, nil, classic},
		"args of something else":           {nil, []string{"sleep", "infinity"}, classic},
		"a flag whose value ends in proxy": {nil, []string{"--component=proxy", "router"}, classic},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := build.MakePod("p").App("app", build.Running()).Proxy(build.Running(), command(tc.command...), build.Args(tc.args...)).Obj()
			if got := istio.Inspect(pod).Injection; got != tc.want {
				t.Errorf("injection is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestNativeRouterIsNative(t *testing.T) {
	pod := build.MakePod("p").Init("istio-proxy", build.Running(), build.Always, build.Args("proxy", "router")).App("app", build.Running()).Obj()
	if got := istio.Inspect(pod).Injection; got != istio.InjectionNative {
		t.Errorf("injection is %s, want Native", got)
	}
}

func TestProxyless(t *testing.T) {
	fromField := func(c *corev1.Container) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "DISABLE_ENVOY", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}})
	}
	type test struct {
		env  []func(*corev1.Container)
		want bool
	}
	tests := map[string]test{
		"not set":                        {nil, false},
		"another variable":               {[]func(*corev1.Container){build.Env("DISABLE_ENVOY_X", "true")}, false},
		"read from a field":              {[]func(*corev1.Container){fromField}, false},
		"of equal names the last, false": {[]func(*corev1.Container){build.Env("DISABLE_ENVOY", "true"), build.Env("DISABLE_ENVOY", "false")}, false},
		"of equal names the last, true":  {[]func(*corev1.Container){build.Env("DISABLE_ENVOY", "false"), build.Env("DISABLE_ENVOY", "true")}, true},
	}
	for _, value := range []string{"1", "t", "T", "true", "TRUE", "True"} {
		tests["true as "+value] = test{[]func(*corev1.Container){build.Env("DISABLE_ENVOY", value)}, true}
	}
	for _, value := range []string{"", "0", "f", "false", "yes", "on", "tRUE", " true", "true\n", "2"} {
		tests[fmt.Sprintf("not true as %q", value)] = test{[]func(*corev1.Container){build.Env("DISABLE_ENVOY", value)}, false}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := build.MakePod("p").App("app", build.Running(), build.Env("DISABLE_ENVOY", "true")).Proxy(build.Running(), tc.env...).Obj()
			if got := istio.Inspect(pod).Proxyless; got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	t.Run("set on the app alone", func(t *testing.T) {
		pod := build.MakePod("p").App("app", build.Running(), build.Env("DISABLE_ENVOY", "true")).Proxy(build.Running()).Obj()
		if istio.Inspect(pod).Proxyless {
			t.Error("the app's variable counted as the proxy's")
		}
	})
}

// Without a proxy there is nothing else to tell.
func TestInspectWithoutProxy(t *testing.T) {
	pod := build.MakePod("p").App("app", build.Running()).Annotation("status.sidecar.istio.io/port", "15099").Obj()
	if diff := cmp.Diff(istio.Proxy{Injection: istio.InjectionNone}, istio.Inspect(pod)); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
}
