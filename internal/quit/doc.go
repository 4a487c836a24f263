// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quit asks one istio-proxy to quit. It is the only package that talks to a proxy.
//
// The road is a port-forward through the API server to the pod's status port, or, where an operator allows it, an exec of
// pilot-agent in the proxy's container. One attempt is one connection, bounded by one context: when the attempt ends, however
// it ends, no goroutine and no connection of it remains. What comes back from a pod is a tenant's: it is read within bounds,
// turned into an [Outcome], and never repeated.
//
// An outcome says what was heard, not what became of the proxy. Only the pod's status tells whether the proxy has quit.
package quit
