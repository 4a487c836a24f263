// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The upgrade: from an HTTP request to a connection that carries streams, by WebSocket or by SPDY, whichever the API server can.

package quit

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	// maxUpgradeHeaderBytes bounds the header of the API server's answer, maxUpgradeBodyBytes what is read of its body.
	maxUpgradeHeaderBytes = 16 << 10
	maxUpgradeBodyBytes   = 4 << 10

	// rememberSPDY is how long SPDY goes first after WebSocket did not work and SPDY did. Then WebSocket gets another try:
	// API servers are upgraded.
	rememberSPDY = 10 * time.Minute
)

// upgrade is what to ask of the API server.
type upgrade struct {
	url *url.URL
	// webSocket is the subprotocol, spdy the stream protocol version to ask for.
	webSocket string
	spdy      string
}

// upgraded is a connection that carries streams: SPDY frames, except for an exec by WebSocket.
type upgraded struct {
	io.ReadWriteCloser
	protocol Protocol
}

// preference remembers which protocol works for this API server and route.
type preference struct {
	mu        sync.Mutex
	spdyUntil time.Time
}

// order returns the protocols, the one to try first in front.
func (p *preference) order(now time.Time) [2]Protocol {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.spdyUntil) {
		return [2]Protocol{ProtocolSPDY, ProtocolWebSocket}
	}
	return [2]Protocol{ProtocolWebSocket, ProtocolSPDY}
}

// prefer puts one protocol first from now on.
func (p *preference) prefer(protocol Protocol, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spdyUntil = time.Time{}
	if protocol == ProtocolSPDY {
		p.spdyUntil = now.Add(rememberSPDY)
	}
}

// connect upgrades a connection by the preferred protocol or, where the server cannot, by the other.
func (c *Client) connect(a *attempt, want upgrade, preferred *preference) (*upgraded, *failure) {
	order := preferred.order(time.Now())
	conn, first := c.upgradeBy(a, want, order[0])
	if first == nil {
		return conn, nil
	}
	if first.outcome == OutcomeTimeout && a.isConnected() {
		// Something between may swallow the one upgrade and pass the other. There is no time left to find out: the next attempt will.
		preferred.prefer(order[1], time.Now())
	}
	if !first.otherProtocol {
		return nil, first
	}
	conn, second := c.upgradeBy(a, want, order[1])
	if second == nil {
		preferred.prefer(order[1], time.Now())
		return conn, nil
	}
	if first.reached > second.reached {
		return nil, first
	}
	return nil, second
}

// upgradeBy tries one protocol.
func (c *Client) upgradeBy(a *attempt, want upgrade, protocol Protocol) (*upgraded, *failure) {
	a.dialing()
	method, roundTripper := http.MethodGet, c.webSocket
	if protocol == ProtocolSPDY {
		method, roundTripper = http.MethodPost, c.spdy
	}
	req, err := http.NewRequestWithContext(a.ctx, method, want.url.String(), nil)
	if err != nil {
		return nil, failed(OutcomeError, fmt.Errorf("building the request to the API server: %w", err))
	}
	if protocol == ProtocolSPDY {
		req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
		req.Header.Set(httpstream.HeaderUpgrade, streamspdy.HeaderSpdy31)
		req.Header.Set(httpstream.HeaderProtocolVersion, want.spdy)
	} else {
		req.Header.Set(wsstream.WebSocketProtocolHeader, want.webSocket)
	}

	resp, err := roundTripper.RoundTrip(req)
	if err != nil {
		return nil, a.upgradeFailed(err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols || !ok:
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxUpgradeBodyBytes))
		if err != nil && a.ended(err) != nil {
			return nil, a.cutShort(err, "the API server's answer to the upgrade did not end")
		}
		return nil, classifyUpgrade(resp.StatusCode, body, method)
	case protocol == ProtocolWebSocket && resp.Header.Get(wsstream.WebSocketProtocolHeader) != want.webSocket,
		protocol == ProtocolSPDY && resp.Header.Get(httpstream.HeaderProtocolVersion) != want.spdy:
		_ = conn.Close()
		f := failed(OutcomeError, fmt.Errorf("the API server upgraded to %s without the stream protocol asked for", protocol))
		f.otherProtocol = true
		return nil, f
	}
	return &upgraded{ReadWriteCloser: conn, protocol: protocol}, nil
}

// upgradeFailed judges an upgrade that was not answered.
func (a *attempt) upgradeFailed(err error) *failure {
	if a.ended(err) != nil {
		if a.isConnected() {
			return a.cutShort(err, "the API server did not answer the upgrade; it waits for the node's kubelet")
		}
		return a.cutShort(err, "no connection to the API server")
	}
	if !a.isConnected() {
		return failed(OutcomeError, fmt.Errorf("connecting to the API server: %w", err))
	}
	// Between here and the API server may be what knows one upgrade and drops the connection at the other.
	f := failed(OutcomeError, fmt.Errorf("the connection to the API server ended during the upgrade"))
	f.otherProtocol = true
	return f
}
