// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The exec: pilot-agent, which is in every image of the proxy, asks Envoy to quit from inside its container.

package quit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// quitCommand needs neither a shell nor curl, which distroless images lack.
var quitCommand = []string{"pilot-agent", "request", "POST", "quitquitquit"}

// execPrelude opens the streams of an exec.
var execPrelude = sync.OnceValues(func() ([]byte, error) {
	return prelude(
		open(errorStream, corev1.StreamTypeError),
		finish(errorStream),
		open(stdoutStream, corev1.StreamTypeStdout),
		open(stderrStream, corev1.StreamTypeStderr),
	)
})

// askByExec does one attempt. It returns nil where the command exited 0.
func (c *Client) askByExec(a *attempt, t Target, r *Result) *failure {
	conn, f := c.connect(a, upgrade{
		url: c.url(t, "exec", url.Values{
			"container": {t.Container}, "command": quitCommand, "stdout": {"true"}, "stderr": {"true"},
		}),
		webSocket: remotecommand.StreamProtocolV5Name,
		spdy:      remotecommand.StreamProtocolV4Name,
	}, &c.exec)
	now := time.Now()
	r.Timings.Connect, r.Timings.Upgrade = a.phases(now)
	if f != nil {
		return f
	}
	r.Protocol = conn.protocol
	defer func() { r.Timings.Exchange = time.Since(now) }()
	defer func() { _ = conn.Close() }()

	if ws, ok := conn.ReadWriteCloser.(*webSocketBody); ok {
		return execByWebSocket(a, ws)
	}
	return execBySPDY(a, conn)
}

// execBySPDY reads the command's end from the error stream. What the command prints is passed over.
func execBySPDY(a *attempt, conn io.ReadWriter) *failure {
	request, err := execPrelude()
	if err != nil {
		return failed(OutcomeError, fmt.Errorf("encoding the request: %w", err))
	}
	if _, err := conn.Write(request); err != nil {
		if a.ended(err) != nil {
			return a.cutShort(err, "the streams could not be opened")
		}
		return failed(OutcomeError, errors.New("the connection ended before the streams were opened"))
	}
	s := newStreams(conn)
	for !s.hasEnded(errorStream) && !json.Valid(s.errorText) && s.next() {
	}
	return judgeExec(a, s.errorText, s.err, s.opened[errorStream])
}

// execByWebSocket reads the command's end from the messages of the error channel. What the command prints is passed over.
func execByWebSocket(a *attempt, ws *webSocketBody) *failure {
	var text []byte
	for !json.Valid(text) && len(text) < maxErrorTextBytes {
		message, err := ws.next()
		if err != nil {
			return judgeExec(a, text, err, true)
		}
		var channel [1]byte
		if _, err := io.ReadFull(message, channel[:]); err != nil || channel[0] != remotecommand.StreamErr {
			continue // the next message passes over the rest of this one
		}
		more, err := io.ReadAll(io.LimitReader(message, int64(maxErrorTextBytes-len(text))))
		text = append(text, more...)
		if err != nil {
			return judgeExec(a, text, err, true)
		}
	}
	return judgeExec(a, text, nil, true)
}

// judgeExec judges what came on the error stream of an exec, nil for a command that exited 0. met is what ended the reading, or
// nil; started says whether the command may have been started.
func judgeExec(a *attempt, text []byte, met error, started bool) *failure {
	if len(text) > 0 {
		return judgeExecStatus(text)
	}
	switch {
	case a.ctx.Err() != nil || a.ended(met) != nil:
		return a.cutShort(met, "the command did not end")
	case errors.Is(met, errNotSPDY):
		return failed(OutcomeError, errors.New("the API server upgraded and then sent no SPDY"))
	case !started:
		return failed(OutcomeError, errors.New("the connection ended before the kubelet opened the streams"))
	default:
		return failed(OutcomeUnknown, errors.New("the command was started and its exit code never came"))
	}
}

func judgeExecStatus(text []byte) *failure {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return failed(OutcomeError, errors.New("the kubelet's word on the command's end cannot be read"))
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return nil
	case status.Code == http.StatusForbidden:
		return failed(OutcomeError, fmt.Errorf("the kubelet forbids the exec: %w", ErrNotAllowed))
	case status.Reason != remotecommand.NonZeroExitCodeReason:
		if matches(text, podGoneWords) {
			return failed(OutcomeError, fmt.Errorf("the proxy's container no longer runs: %w", ErrPodGone))
		}
		return failed(OutcomeError, errors.New("the container runtime or the kubelet failed to run pilot-agent"))
	}
	code := -1
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if n, err := strconv.ParseUint(cause.Message, 10, 8); err == nil && cause.Type == remotecommand.ExitCodeCauseType {
				code = int(n)
			}
		}
	}
	switch code {
	case 137, 143: // killed with its container, which ends when the proxy does
		return failed(OutcomeUnknown, fmt.Errorf("pilot-agent was killed (exit code %d), as it is when its container ends", code))
	case -1:
		return failed(OutcomeRejected, errors.New("pilot-agent exited with an unknown code"))
	default:
		return failed(OutcomeRejected, fmt.Errorf("pilot-agent exited with code %d", code))
	}
}
