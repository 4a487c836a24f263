// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The port of the agent's status server: three sources and a default, in the order in which the agent itself takes them.

package istio

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// DefaultStatusPort is where the agent listens unless told otherwise.
const DefaultStatusPort = 15020

const statusPortAnnotation = "status.sidecar.istio.io/port"

// StatusPort is the agent's port and where it was read.
type StatusPort struct {
	// Port is 1 to 65535, or 0 where the agent has no status server.
	Port int32
	// Source is the annotation or variable that the port was read from, or "default".
	Source string
}

// statusPortOf finds the effective status port, highest first: the annotation status.sidecar.istio.io/port, statusPort in the
// annotation proxy.istio.io/config, statusPort in the proxy's variable PROXY_CONFIG, 15020
// (pilot-agent: ConstructProxyConfig). An annotation that is no port disables the server, as 0 does; a source of the other two
// that holds no port passes on to the next.
func statusPortOf(pod *corev1.Pod, annotated, variable proxyConfig) StatusPort {
	if text, ok := pod.Annotations[statusPortAnnotation]; ok {
		return StatusPort{Port: annotatedPort(text), Source: statusPortAnnotation}
	}
	if port := annotated.statusPort(); port != 0 {
		return StatusPort{Port: port, Source: proxyConfigAnnotation}
	}
	if port := variable.statusPort(); port != 0 {
		return StatusPort{Port: port, Source: proxyConfigEnv}
	}
	return StatusPort{Port: DefaultStatusPort, Source: "default"}
}

// annotatedPort reads the annotation status.sidecar.istio.io/port: 0 where it is no port.
func annotatedPort(text string) int32 {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return int32(port)
}
