// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package istio reads what Istio's injector left in a pod: which container is the proxy, how it was injected, what role it
// plays, and on which port its agent listens. The pod's spec is the truth; the annotation sidecar.istio.io/status is not read,
// because it can disagree with it.
package istio

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/internal/lifecycle"
)

// ProxyContainer is the name that the injector gives the proxy's container. It is hard-coded there.
const ProxyContainer = "istio-proxy"

// What Inspect reads of a pod beside its containers' names, commands and restart policies. A cache must keep these.
var (
	ReadAnnotations = []string{statusPortAnnotation, proxyConfigAnnotation}
	ReadVariables   = []string{proxyConfigEnv, disableEnvoyEnv}
)

const (
	disableEnvoyEnv = "DISABLE_ENVOY"
	// routerRole is the role of a gateway: `proxy router`.
	routerRole = "router"
)

// Injection is how the proxy came into a pod. The values are a public contract: a metric label and output of the plugin.
type Injection string

// The kinds of injection.
const (
	// InjectionClassic: istio-proxy is one of spec.containers and keeps the pod from finishing.
	InjectionClassic Injection = "Classic"
	// InjectionNative: istio-proxy is a native sidecar, which the kubelet stops by itself.
	InjectionNative Injection = "Native"
	// InjectionGateway: istio-proxy is the pod's own purpose, run as `proxy router`.
	InjectionGateway Injection = "Gateway"
	// InjectionNone: no proxy; not injected, or an ambient mesh.
	InjectionNone Injection = "None"
)

// Proxy is what a pod's spec and annotations tell of its proxy.
type Proxy struct {
	Injection Injection
	// Container is the proxy's container in the pod; nil where Injection is None.
	Container *corev1.Container
	// StatusPort is where the agent listens for quitquitquit.
	StatusPort StatusPort
	// Drain is how long the agent may drain connections before it exits (terminationDrainDuration; agents from 1.26 on skip it
	// when asked to quit).
	Drain time.Duration
	// Proxyless is true for an agent that never starts Envoy (proxyless gRPC), and so has no working quitquitquit.
	Proxyless bool
}

// Inspect finds the pod's proxy. A classic one goes before a native one: an init container that merely bears the name cannot
// hide a container that keeps the pod from finishing.
func Inspect(pod *corev1.Pod) Proxy {
	if c := containerNamed(pod.Spec.Containers, ProxyContainer); c != nil {
		if role(c) == routerRole {
			return inspect(pod, c, InjectionGateway)
		}
		return inspect(pod, c, InjectionClassic)
	}
	if c := containerNamed(pod.Spec.InitContainers, ProxyContainer); c != nil && lifecycle.IsSidecar(c) {
		return inspect(pod, c, InjectionNative)
	}
	return Proxy{Injection: InjectionNone}
}

func inspect(pod *corev1.Pod, c *corev1.Container, injection Injection) Proxy {
	annotated, variable := parseProxyConfig(pod.Annotations[proxyConfigAnnotation]), parseProxyConfig(envValue(c, proxyConfigEnv))
	return Proxy{
		Injection:  injection,
		Container:  c,
		StatusPort: statusPortOf(pod, annotated, variable),
		Drain:      cmp.Or(annotated.drain(), variable.drain(), defaultDrain),
		Proxyless:  disablesEnvoy(c),
	}
}

func containerNamed(containers []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// role is the first word after `proxy` that is no flag in the container's command and arguments: sidecar, router, or nothing.
func role(c *corev1.Container) string {
	words := slices.Concat(c.Command, c.Args)
	start := slices.Index(words, "proxy")
	if start < 0 {
		return ""
	}
	for _, word := range words[start+1:] {
		if !strings.HasPrefix(word, "-") {
			return word
		}
	}
	return ""
}

// disablesEnvoy reads DISABLE_ENVOY as the agent does, with strconv.ParseBool.
func disablesEnvoy(c *corev1.Container) bool {
	on, err := strconv.ParseBool(envValue(c, disableEnvoyEnv))
	return err == nil && on
}

// envValue returns the value of a variable that the spec states in full, or "". The last of equal names counts, as in the
// container's own environment.
func envValue(c *corev1.Container, name string) string {
	for _, variable := range slices.Backward(c.Env) {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}
