// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Every way an attempt can go, over both protocols.

package quit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// refusedByContainerd and the texts below are what runtimes write on the error stream.
const (
	refusedByContainerd = `failed to execute portforward in network namespace "/var/run/netns/cni-` + tenant + `": failed to connect to ` +
		`localhost:15020 inside namespace "` + tenant + `", IPv4: dial tcp4 127.0.0.1:15020: connect: connection refused IPv6 dial tcp6 ` +
		`[::1]:15020: connect: connection refused `
	refusedByCRIO = `port forward into network namespace "/var/run/netns/` + tenant + `": failed to connect to localhost:15020 inside ` +
		`namespace ` + tenant + `: dial tcp [::1]:15020: connect: connection refused`
	refusedBySocat = `exit status 1: 2026/11/30 10:00:00 socat[` + tenant + `] E connect(5, AF=2 127.0.0.1:15020, 16): Connection refused`
	resetText      = `failed to execute portforward in network namespace "/var/run/netns/` + tenant + `": read tcp4 ` +
		`127.0.0.1:40000->127.0.0.1:15020: read: connection reset by peer`
	sandboxGone = `an error occurred when try to find sandbox "` + tenant + `": not found`
	noNamespace = `failed to execute portforward in network namespace "/var/run/netns/` + tenant + `": open: no such file or directory`
)

type front = func(w http.ResponseWriter, r *http.Request, next http.Handler)

// onWebSocket stands before WebSocket upgrades alone.
func onWebSocket(answer func(w http.ResponseWriter)) front {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if wsstream.IsWebSocketRequest(r) {
			answer(w)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func always(answer func(w http.ResponseWriter)) front {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { answer(w) }
}

func status(code int) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { answerStatus(w, code) }
}

func plain(code int, text string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { http.Error(w, text, code) }
}

const accepted = "HTTP/1.1 200 OK\r\nX-From: " + tenant + "\r\n"

var portForwardCases = map[string]struct {
	forward      forward
	front        front
	kubeletFront front
	timeout      time.Duration // 10 s where none is given
	want         Outcome
	wantErr      error
	wantProtocol Protocol // where not the one that goes first
	only         Protocol // where the other makes no sense
}{
	"200 and the body":              {forward: says(accepted + "Content-Length: 2\r\n\r\nOK"), want: OutcomeAccepted},
	"200 and nothing more":          {forward: says(accepted + "\r\n"), want: OutcomeAccepted},
	"200 and the stream stays open": {forward: saysAndStays(accepted + "Content-Length: 2\r\n\r\n"), want: OutcomeAccepted},
	"200 and one byte a minute":     {forward: saysAndStays(accepted + "Content-Length: 2\r\n\r\nO"), want: OutcomeAccepted},
	"200 and an endless body":       {forward: saysForEver(accepted+"\r\n", strings.Repeat(tenant, 1000)), want: OutcomeAccepted},
	"200 and a gzip bomb": {
		forward: saysForEver(accepted+"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08", strings.Repeat("\x00", 1000)), want: OutcomeAccepted,
	},
	"200 with bare newlines":      {forward: says("HTTP/1.0 200 OK\n\n"), want: OutcomeAccepted},
	"100 first":                   {forward: says("HTTP/1.1 100 Continue\r\n\r\n" + accepted + "\r\n"), want: OutcomeAccepted},
	"1xx for ever":                {forward: saysForEver("", "HTTP/1.1 102 "+tenant+"\r\n\r\n"), want: OutcomeRejected},
	"101":                         {forward: says("HTTP/1.1 101 " + tenant + "\r\nUpgrade: x\r\n\r\n"), want: OutcomeRejected},
	"403":                         {forward: says("HTTP/1.1 403 Forbidden\r\n\r\n" + tenant), want: OutcomeForbidden},
	"404":                         {forward: says("HTTP/1.1 404 " + tenant + "\r\n\r\n"), want: OutcomeRejected},
	"405":                         {forward: says("HTTP/1.1 405 Method Not Allowed\r\n\r\n"), want: OutcomeRejected},
	"500":                         {forward: says("HTTP/1.1 500 " + tenant + "\r\n\r\n"), want: OutcomeRejected},
	"redirect":                    {forward: says("HTTP/1.1 302 Found\r\nLocation: http://" + tenant + "/\r\n\r\n"), want: OutcomeRejected},
	"endless headers":             {forward: saysForEver(accepted, "X-A: "+tenant+"\r\n"), want: OutcomeRejected},
	"one endless header":          {forward: saysForEver(accepted+"X-A: ", tenant), want: OutcomeRejected},
	"garbage":                     {forward: says("\x15\x03\x01\x00\x02\x02" + tenant), want: OutcomeRejected},
	"garbage for ever":            {forward: saysForEver("", "\x00\xff"+tenant), want: OutcomeRejected},
	"a status that is no number":  {forward: says("HTTP/1.1 " + tenant + "\r\n\r\n"), want: OutcomeRejected},
	"HTTP/2":                      {forward: says("HTTP/2.0 200 OK\r\n\r\n"), want: OutcomeRejected},
	"headers, one byte a minute":  {forward: saysAndStays("HTTP/1.1 200 OK\r\nX"), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"nothing after the request":   {forward: saysAndStays(""), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"EOF and no word":             {forward: says(""), want: OutcomeUnknown},
	"EOF in the status line":      {forward: says("HTTP/1.1 20"), want: OutcomeUnknown},
	"EOF in the header":           {forward: says(accepted), want: OutcomeUnknown},
	"reset after the request":     {forward: fails(resetText), want: OutcomeUnknown},
	"broken pipe":                 {forward: fails("write: broken pipe " + tenant), want: OutcomeUnknown},
	"refused, says containerd":    {forward: fails(refusedByContainerd), want: OutcomeRefused},
	"refused, says CRI-O":         {forward: fails(refusedByCRIO), want: OutcomeRefused},
	"refused, says socat":         {forward: fails(refusedBySocat), want: OutcomeRefused},
	"no network namespace":        {forward: fails(noNamespace), want: OutcomeRefused},
	"no sandbox":                  {forward: fails(sandboxGone), want: OutcomeError, wantErr: ErrPodGone},
	"another error":               {forward: fails("socat not found " + tenant), want: OutcomeError},
	"an error with control bytes": {forward: fails("\x1b[2J\x00\r\n" + tenant), want: OutcomeError},
	"a flood of errors":           {forward: fails(strings.Repeat(tenant, 1<<18)), want: OutcomeError},

	"hang at the upgrade":      {front: hangs(""), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"hang in the upgrade":      {front: hangs("HTTP/1.1 101 Switching"), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"hang in an answer's body": {front: hangs("HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n"), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"hang at the kubelet":      {kubeletFront: hangs(""), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	"hang at the streams":      {kubeletFront: hangs(switched), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
	// By WebSocket the API server itself may not notice that its kubelet has gone.
	"the kubelet ends at once":  {kubeletFront: ends(switched), want: OutcomeError, only: ProtocolSPDY},
	"the kubelet sends no SPDY": {kubeletFront: hangs(switched + "\x80\x04\x00\x02" + strings.Repeat(tenant, 100)), want: OutcomeError},

	"500 of the kubelet":     {kubeletFront: always(plain(500, tenant)), want: OutcomeError},
	"500 without a sandbox":  {kubeletFront: always(plain(500, "sandbox "+tenant+" is not running")), want: OutcomeError, wantErr: ErrPodGone},
	"404 of the kubelet":     {kubeletFront: always(plain(404, "pod does not exist "+tenant)), want: OutcomeError, wantErr: ErrPodGone},
	"404 of the API server":  {front: always(status(404)), want: OutcomeError, wantErr: ErrPodGone},
	"401":                    {front: always(status(401)), want: OutcomeError, wantErr: ErrNotAllowed},
	"RBAC":                   {front: always(status(403)), want: OutcomeError, wantErr: ErrNotAllowed},
	"409":                    {front: always(status(409)), want: OutcomeError},
	"429":                    {front: always(status(429)), want: OutcomeError, wantErr: ErrAPIServerBusy},
	"503":                    {front: always(status(503)), want: OutcomeError},
	"502 of a load balancer": {front: always(plain(502, "<html>")), want: OutcomeError},
	"200 instead of upgrade": {front: always(plain(200, "hello")), want: OutcomeError},
	"a redirect of the API": {front: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, "/", http.StatusFound)
	}, want: OutcomeError},
	"connection cut":          {front: ends(""), want: OutcomeError},
	"upgrade to another":      {front: always(func(w http.ResponseWriter) { w.Header().Set("Upgrade", "x"); w.WriteHeader(http.StatusBadRequest) }), want: OutcomeError},
	"endless upgrade headers": {front: endlessHeaders, want: OutcomeError},

	"400 on WebSocket": {
		front: onWebSocket(plain(400, "unable to upgrade")), forward: says(accepted + "\r\n"), want: OutcomeAccepted, wantProtocol: ProtocolSPDY,
	},
	"403 without a Status on WebSocket": {
		front: onWebSocket(plain(403, "")), forward: says(accepted + "\r\n"), want: OutcomeAccepted, wantProtocol: ProtocolSPDY,
	},
	"RBAC forbids get alone": {
		front: onWebSocket(status(403)), forward: says(accepted + "\r\n"), want: OutcomeAccepted, wantProtocol: ProtocolSPDY,
	},
	"RBAC forbids get alone, and no sandbox": {
		front: onWebSocket(status(403)), kubeletFront: always(plain(500, "sandbox is not running")), want: OutcomeError, wantErr: ErrPodGone,
	},
	"no WebSocket, and RBAC forbids create": {
		front: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			if wsstream.IsWebSocketRequest(r) {
				plain(400, "")(w)
				return
			}
			status(403)(w)
		},
		want: OutcomeError, wantErr: ErrNotAllowed,
	},
	"WebSocket is cut off on the way": {
		front: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if wsstream.IsWebSocketRequest(r) {
				ends("")(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		},
		forward: says(accepted + "\r\n"), want: OutcomeAccepted, wantProtocol: ProtocolSPDY,
	},
	"SPDY no longer served": {
		front: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !wsstream.IsWebSocketRequest(r) {
				plain(400, "")(w)
				return
			}
			next.ServeHTTP(w, r)
		},
		forward: says(accepted + "\r\n"), want: OutcomeAccepted, wantProtocol: ProtocolWebSocket,
	},
}

const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"

// ends writes text on the connection and closes it.
func ends(text string) front {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

func endlessHeaders(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n")
	for range 1 << 14 {
		if err != nil {
			return
		}
		_, err = io.WriteString(conn, strings.Repeat("X-A: 0123456789\r\n", 64))
	}
}

func TestPortForward(t *testing.T) {
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		t.Run(string(first), func(t *testing.T) {
			c := newCluster(t)
			for name, tc := range portForwardCases {
				if tc.only != "" && tc.only != first {
					continue
				}
				t.Run(name, func(t *testing.T) {
					c.set(func(c *cluster) { c.forward, c.front, c.kubeletFront = tc.forward, tc.front, tc.kubeletFront })
					timeout := tc.timeout
					if timeout == 0 {
						timeout = 10 * time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					got := c.client(first).PortForward(ctx, Target{Namespace: "team-a", Pod: "job-1", Port: 15020})
					checkResult(t, got, tc.want, tc.wantErr)
					wantProtocol := first
					if tc.wantProtocol != "" {
						wantProtocol = tc.wantProtocol
					}
					if got.Protocol != "" && got.Protocol != wantProtocol {
						t.Errorf("protocol %s, want %s", got.Protocol, wantProtocol)
					}
					if late := got.Duration - timeout; late > time.Second {
						t.Errorf("ended %v after its deadline", late)
					}
					c.waitClosed()
				})
			}
		})
	}
}

// checkResult checks an outcome, that an error goes with it, and that the error shows nothing of a tenant's.
func checkResult(t *testing.T, got Result, want Outcome, wantErr error) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("outcome %s (%v), want %s", got.Outcome, got.Err, want)
	}
	if (got.Err == nil) != (got.Outcome == OutcomeAccepted) {
		t.Errorf("outcome %s with error %v", got.Outcome, got.Err)
	}
	if wantErr != nil && !errors.Is(got.Err, wantErr) {
		t.Errorf("error %v, want %v", got.Err, wantErr)
	}
	if got.Err != nil {
		for _, r := range got.Err.Error() {
			if r < ' ' || r > '~' {
				t.Errorf("error %q has a byte of somebody else's", got.Err)
			}
		}
		if strings.Contains(got.Err.Error(), tenant) {
			t.Errorf("error %q shows a tenant's bytes", got.Err)
		}
	}
	if got.Duration <= 0 {
		t.Errorf("duration %v", got.Duration)
	}
}
