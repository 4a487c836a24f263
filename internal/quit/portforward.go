// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The port-forward: one request and its answer over the streams of pods/portforward.

package quit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	portforward "k8s.io/apimachinery/pkg/util/portforward"
)

// quitRequest is the whole request. The agent looks at the peer's address and the method, and at nothing else.
const quitRequest = "POST /quitquitquit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// settleTime is how long the streams may take to say the rest once there is an answer, or an end without one: why the data
// stream has ended, and that both had been opened.
const settleTime = time.Second

// portForwardPrelude opens the pair of streams for a port and sends the request. It is the same each time, and encoding it
// costs more than all the rest of an attempt.
func (c *Client) portForwardPrelude(port int32) ([]byte, error) {
	if cached, ok := c.preludes.Load(port); ok {
		return cached.([]byte), nil
	}
	headers := []string{corev1.PortHeader, strconv.Itoa(int(port)), corev1.PortForwardRequestIDHeader, "0"}
	encoded, err := prelude(
		open(errorStream, corev1.StreamTypeError, headers...),
		finish(errorStream),
		open(dataStream, corev1.StreamTypeData, headers...),
		&spdy.DataFrame{StreamId: dataStream, Data: []byte(quitRequest)},
	)
	if err != nil {
		return nil, err
	}
	c.preludes.Store(port, encoded)
	return encoded, nil
}

// askByPortForward does one attempt. It returns nil where the agent accepted.
func (c *Client) askByPortForward(a *attempt, t Target, r *Result) *failure {
	request, err := c.portForwardPrelude(t.Port)
	if err != nil {
		return failed(OutcomeError, fmt.Errorf("encoding the request: %w", err))
	}
	conn, f := c.connect(a, upgrade{
		url:       c.url(t, "portforward", nil),
		webSocket: portforward.WebsocketsSPDYTunnelingPortForwardV1,
		spdy:      portforward.PortForwardV1Name,
	}, &c.portForward)
	now := time.Now()
	r.Timings.Connect, r.Timings.Upgrade = a.phases(now)
	if f != nil {
		return f
	}
	r.Protocol = conn.protocol
	defer func() { r.Timings.Exchange = time.Since(now) }()
	defer func() { _ = conn.Close() }()

	if _, err := conn.Write(request); err != nil {
		if a.ended(err) != nil {
			return a.cutShort(err, "the request could not be sent")
		}
		return failed(OutcomeError, errors.New("the connection ended before the request was sent"))
	}
	s := newStreams(conn)
	status, err := readReply(s.stream(dataStream))
	settled := time.AfterFunc(settleTime, a.close)
	defer settled.Stop()
	s.awaitOpened(errorStream, dataStream)
	switch {
	case err == nil:
		return judgeStatus(status)
	case !errors.Is(err, errNoReply):
		return failed(OutcomeRejected, err)
	}
	for !s.hasEnded(errorStream) && s.next() {
	}
	return judgeSilence(a, s)
}

// judgeStatus judges the agent's answer, nil for accepted.
func judgeStatus(status int) *failure {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		return failed(OutcomeForbidden, errors.New("the agent answered 403: it takes requests from the pod's loopback alone, "+
			"and this container runtime came from elsewhere"))
	default:
		return failed(OutcomeRejected, fmt.Errorf("the status port answered %d instead of 200", status))
	}
}

// judgeSilence judges a data stream that ended, or a context that did, without an answer.
func judgeSilence(a *attempt, s *streams) *failure {
	if len(s.errorText) > 0 {
		return classifyErrorText(s.errorText)
	}
	ended := a.ctx.Err() != nil || a.ended(s.err) != nil
	switch {
	case ended && s.opened[dataStream]:
		return a.cutShort(s.err, "the request was sent and not answered")
	case ended:
		return a.cutShort(s.err, "the kubelet did not open the streams")
	case errors.Is(s.err, errNotSPDY):
		return failed(OutcomeError, errors.New("the API server upgraded and then sent no SPDY"))
	case !s.opened[dataStream] && s.err != nil:
		return failed(OutcomeError, errors.New("the connection ended before the kubelet opened the streams"))
	case !s.opened[dataStream]:
		return failed(OutcomeError, errors.New("the kubelet refused to open the streams"))
	default:
		return failed(OutcomeUnknown, errors.New("the request was sent and the stream ended without an answer"))
	}
}
