// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What an attempt is told and what it answers: the vocabulary that callers, metrics and messages share.

package quit

import "time"

// Outcome says how one attempt ended. The values are a public contract: they are metric label values.
type Outcome string

const (
	// OutcomeAccepted means that the proxy's agent answered 200, or the command in its container exited 0.
	OutcomeAccepted Outcome = "accepted"
	// OutcomeRefused means that the container runtime could not connect to the port. The agent is not up yet, or has gone:
	// nothing was delivered. It is what most first attempts meet when a short app finishes before its proxy has started.
	OutcomeRefused Outcome = "refused"
	// OutcomeForbidden means that the agent answered 403, as it does to a peer that is not the pod's own loopback.
	// The API server's refusal to let this client in is an OutcomeError.
	OutcomeForbidden Outcome = "forbidden"
	// OutcomeRejected means that whoever listens answered something else: another status, a redirect, or no HTTP at all;
	// or the command exited with another code than 0.
	OutcomeRejected Outcome = "rejected"
	// OutcomeTimeout means that the context's deadline passed. It covers a request that was sent and never answered, too: an agent
	// that means to quit answers before it does anything else, so silence until the deadline is a hung agent or a lost
	// node, and asking a proxy again that is on its way out after all does no harm.
	OutcomeTimeout Outcome = "timeout"
	// OutcomeUnknown means that the request was sent, and the stream ended without an answer. The agent may exit before its
	// answer is flushed, so the proxy may be quitting.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeError means that the attempt failed on the way: no connection to the API server, no permission, no such pod, a pod
	// that no longer runs, or a caller that cancelled.
	OutcomeError Outcome = "error"
)

// Outcomes returns every outcome, for those who must prepare one of something for each.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeAccepted, OutcomeRefused, OutcomeForbidden, OutcomeRejected, OutcomeTimeout, OutcomeUnknown, OutcomeError,
	}
}

// Asked says whether the proxy was asked and may be on its way out, so that the caller should watch the pod's status before
// it tries again. Every other outcome is a failure, to be tried again after a back-off.
func (o Outcome) Asked() bool {
	return o == OutcomeAccepted || o == OutcomeUnknown
}

// Route says how the proxy was reached. The values are metric label values.
type Route string

const (
	// RoutePortForward is POST /quitquitquit through pods/portforward.
	RoutePortForward Route = "PortForward"
	// RouteExec is "pilot-agent request POST quitquitquit" through pods/exec.
	RouteExec Route = "Exec"
)

// Routes returns every route.
func Routes() []Route {
	return []Route{RoutePortForward, RouteExec}
}

// Protocol names what carried the streams between this client and the API server.
type Protocol string

const (
	// ProtocolWebSocket carries, for a port-forward, SPDY frames in WebSocket messages, for an exec the v5 channel protocol.
	ProtocolWebSocket Protocol = "WebSocket"
	// ProtocolSPDY is SPDY/3.1, which every API server speaks.
	ProtocolSPDY Protocol = "SPDY"
)

// Target names the proxy to ask. A port-forward names the pod by name alone, so the caller reads the pod again just before
// it asks, to be sure that it is still the pod that was meant.
type Target struct {
	Namespace string
	Pod       string
	// Container is the proxy's container. Only Exec uses it.
	Container string
	// Port is the status port, 1 to 65535. Only PortForward uses it.
	Port int32
}

// Result is what came of one attempt.
type Result struct {
	Outcome Outcome
	Route   Route
	// Protocol is empty where no connection was upgraded.
	Protocol Protocol
	// Duration is the length of the whole attempt.
	Duration time.Duration
	// Timings splits Duration. A phase that was not reached is 0.
	Timings Timings
	// Err says why, for every outcome but accepted. It is safe to log and to show: it holds this package's words and, for a
	// connection to the API server that failed, the network's; nothing that a pod or a container runtime has sent.
	Err error
}

// Timings are the phases of one attempt, one after the other. Where the first protocol did not work, they are those of the second.
type Timings struct {
	// Connect: to the API server, with TLS and any proxy between.
	Connect time.Duration
	// Upgrade: from the request to the switch of protocols. The API server dials the kubelet within it.
	Upgrade time.Duration
	// Exchange: opening the streams, the request and its answer.
	Exchange time.Duration
}
