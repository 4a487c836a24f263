// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What went wrong, in our own words: text of a pod, a container runtime or a kubelet is matched, and never repeated.

package quit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Causes a caller may want to tell apart, with errors.Is, among the errors of a Result.
var (
	// ErrNotAllowed: the API server does not let this client in. It is the cluster's RBAC that needs a change.
	ErrNotAllowed = errors.New("not allowed by the API server")
	// ErrPodGone: there is no such pod, or its sandbox or container no longer runs. Look at the pod again.
	ErrPodGone = errors.New("the pod no longer runs")
	// ErrAPIServerBusy: the API server asked to be left alone for a while (429).
	ErrAPIServerBusy = errors.New("the API server is busy")
)

// failure is how an attempt ended that was not accepted.
type failure struct {
	outcome Outcome
	err     error
	// otherProtocol: this protocol did not work, the other may.
	otherProtocol bool
	// reached is how far it got. Where both protocols fail, the one that got further has met the true obstacle.
	reached int
}

// How far an attempt got.
const (
	reachedNothing   = iota // a protocol that is not served, or a connection that was cut
	reachedAPIServer        // which does not let this client pass
	reachedPod              // or what stands for it: a kubelet, or a 404
)

func failed(outcome Outcome, err error) *failure {
	return &failure{outcome: outcome, err: err}
}

// cutShort is the failure of an attempt whose context ended while it waited, as what says. met is the error that was met, or nil.
func (a *attempt) cutShort(met error, what string) *failure {
	if errors.Is(a.ended(met), context.Canceled) {
		return failed(OutcomeError, fmt.Errorf("cancelled: %s: %w", what, context.Canceled))
	}
	f := failed(OutcomeTimeout, fmt.Errorf("out of time: %s: %w", what, context.DeadlineExceeded))
	f.reached = reachedPod
	return f
}

// classifyUpgrade judges an answer to an upgrade that is not the upgrade. A body that is a metav1.Status comes from the API
// server; any other from what is between, or from a kubelet behind it.
func classifyUpgrade(code int, body []byte, method string) *failure {
	fromAPIServer := isStatus(body)
	f := failed(OutcomeError, nil)
	f.reached = reachedPod
	f.otherProtocol = !fromAPIServer
	switch {
	case code == http.StatusUnauthorized:
		f.reached = reachedAPIServer
		f.err = fmt.Errorf("the API server does not know this client (401): %w", ErrNotAllowed)
	case code == http.StatusForbidden && fromAPIServer:
		// A WebSocket needs "get" and, from Kubernetes 1.35, "create"; SPDY needs "create" alone.
		f.otherProtocol, f.reached = true, reachedAPIServer
		f.err = fmt.Errorf("RBAC forbids this client the subresource of the pod (403 to %s; grant \"create\" and \"get\"): %w",
			method, ErrNotAllowed)
	case code == http.StatusNotFound:
		f.err = fmt.Errorf("there is no such pod (404): %w", ErrPodGone)
	case code == http.StatusConflict && fromAPIServer:
		f.err = errors.New("the API server answered 409 to the upgrade")
	case code == http.StatusTooManyRequests:
		f.err = fmt.Errorf("the API server answered 429 to the upgrade: %w", ErrAPIServerBusy)
	case code >= 500 || code == http.StatusBadRequest:
		// A kubelet's own error comes with either code and in either form, and a 400 is what an API server says to WebSocket before
		// it knew tunnelling, too.
		if matches(body, podGoneWords) {
			f.err = fmt.Errorf("the kubelet has no running sandbox or container of the pod (%d): %w", code, ErrPodGone)
			break
		}
		if code == http.StatusBadRequest {
			f.otherProtocol, f.reached = true, reachedNothing
		}
		f.err = fmt.Errorf("the upgrade failed with %d: the API server or the node's kubelet had an error", code)
	default:
		f.otherProtocol, f.reached = true, reachedNothing
		f.err = fmt.Errorf("the API server answered %d to the upgrade", code)
	}
	return f
}

// isStatus says whether body is a metav1.Status. It may be cut short, and is then known by its beginning.
func isStatus(body []byte) bool {
	var status metav1.TypeMeta
	if json.Unmarshal(body, &status) == nil {
		return status.Kind == "Status"
	}
	return bytes.HasPrefix(body, []byte(`{"kind":"Status",`))
}

// The words by which container runtimes and kubelets are known to speak, in lower case.
var (
	// notConnectedWords: no connection to the port was made, so nothing was delivered. Go's dialler (containerd, CRI-O), socat
	// (older CRI-O, dockershim).
	notConnectedWords = words("connection refused", "failed to connect", "failed to dial", "dial tcp", "no route to host",
		"network is unreachable", "cannot assign requested address")
	// podGoneWords: there is nothing left to forward to.
	podGoneWords = words("not running", "no running task", "sandbox not found", "not found in sandbox", "find sandbox", "pod not found",
		"pod does not exist", "container not found", "no such container", "notready")
	// cutWords: the connection to the port was made and has ended.
	cutWords = words("connection reset", "broken pipe", "eof", "use of closed", "closed network connection", "connection aborted",
		"not connected", "closed pipe", "stream reset")
	// namespaceWords: the pod's network namespace could not be entered. Where the attempt got further, other words come first.
	namespaceWords = words("network namespace", "netns")
)

func words(list ...string) [][]byte {
	all := make([][]byte, 0, len(list))
	for _, w := range list {
		all = append(all, []byte(w))
	}
	return all
}

func matches(text []byte, list [][]byte) bool {
	text = bytes.ToLower(text)
	for _, w := range list {
		if bytes.Contains(text, w) {
			return true
		}
	}
	return false
}

// classifyErrorText judges what a container runtime or kubelet wrote on a port-forward's error stream.
func classifyErrorText(text []byte) *failure {
	switch {
	case matches(text, notConnectedWords):
		return failed(OutcomeRefused, errors.New("the container runtime could not connect to the status port"))
	case matches(text, podGoneWords):
		return failed(OutcomeError, fmt.Errorf("the container runtime finds no running sandbox: %w", ErrPodGone))
	case matches(text, cutWords):
		return failed(OutcomeUnknown, errors.New("the request was sent and the connection to the status port broke"))
	case matches(text, namespaceWords):
		return failed(OutcomeRefused, errors.New("the container runtime could not enter the pod's network namespace"))
	default:
		return failed(OutcomeError, errors.New("the container runtime or the kubelet failed to forward the port"))
	}
}
