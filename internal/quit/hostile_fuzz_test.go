// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Whole attempts against bytes: a connection in memory on which a peer answers the upgrade as it should and then says whatever the
// fuzzer made, or says that from the start. WebSocket frames, SPDY frames, the reply and the error stream are read as they are in life.

package quit

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	portforward "k8s.io/apimachinery/pkg/util/portforward"
	utilremotecommand "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
)

// memoryConn is the client's end of a connection whose peer reads the request, then says what answer makes of it, and ends.
type memoryConn struct {
	answer func(request *http.Request) []byte

	mu      sync.Mutex
	ready   *sync.Cond
	request bytes.Buffer
	reply   *bytes.Reader
	read    int
	closed  bool
}

func newMemoryConn(answer func(*http.Request) []byte) *memoryConn {
	c := &memoryConn{answer: answer}
	c.ready = sync.NewCond(&c.mu)
	return c
}

func (c *memoryConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if c.reply != nil {
		return len(p), nil
	}
	c.request.Write(p)
	if head := c.request.Bytes(); bytes.Contains(head, []byte("\r\n\r\n")) {
		r := &http.Request{Method: string(head[:bytes.IndexByte(head, ' ')]), Header: http.Header{}}
		for line := range bytes.SplitSeq(head, []byte("\r\n")) {
			if key, value, ok := strings.Cut(string(line), ": "); ok {
				r.Header.Add(textproto.CanonicalMIMEHeaderKey(key), value)
			}
		}
		c.reply = bytes.NewReader(c.answer(r))
		c.ready.Broadcast()
	}
	return len(p), nil
}

func (c *memoryConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.reply == nil && !c.closed {
		c.ready.Wait()
	}
	if c.closed {
		return 0, net.ErrClosed
	}
	n, err := c.reply.Read(p)
	c.read += n
	return n, err
}

func (c *memoryConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.ready.Broadcast()
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *memoryConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *memoryConn) SetDeadline(time.Time) error      { return nil }
func (c *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// upgradeAnswer is a correct answer to an upgrade, of either protocol.
func upgradeAnswer(r *http.Request, webSocket, spdyVersion string) string {
	if r.Method == http.MethodGet {
		sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(sum[:]) + "\r\nSec-WebSocket-Protocol: " + webSocket + "\r\n\r\n"
	}
	return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: " + spdyVersion + "\r\n\r\n"
}

// askInMemory makes one attempt whose peer answers as answer says, and checks what must hold whatever that is.
func askInMemory(t *testing.T, ask func(*Client, context.Context, Target) Result, first Protocol, answer func(*http.Request) []byte) Result {
	t.Helper()
	var conns []*memoryConn
	client, err := NewClient(&rest.Config{
		Host:  "http://api.invalid",
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		Dial: func(context.Context, string, string) (net.Conn, error) {
			conn := newMemoryConn(answer)
			conns = append(conns, conn)
			return conn, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	client.portForward.prefer(first, time.Now())
	client.exec.prefer(first, time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results := make(chan Result, 1)
	go func() {
		results <- ask(client, ctx, Target{Namespace: "team-a", Pod: "job-1", Container: "istio-proxy", Port: 15020})
	}()
	var result Result
	select {
	case result = <-results:
	case <-time.After(30 * time.Second):
		t.Fatal("the attempt goes on beyond its deadline")
	}

	if !slices.Contains(Outcomes(), result.Outcome) || (result.Err == nil) != (result.Outcome == OutcomeAccepted) {
		t.Errorf("got %+v", result)
	}
	if result.Outcome == OutcomeTimeout {
		t.Errorf("the peer had ended, and the attempt ran on until its deadline: %v", result.Err)
	}
	if len(conns) > 2 {
		t.Errorf("%d connections for one attempt", len(conns))
	}
	read := 0
	for _, conn := range conns {
		conn.mu.Lock()
		read += conn.read
		if !conn.closed {
			t.Error("a connection was left open")
		}
		conn.mu.Unlock()
	}
	// A read that begins within the budget may end beyond it, by the length of one buffer.
	if read > maxAttemptBytes+2*64<<10 {
		t.Errorf("one attempt read %d bytes", read)
	}
	return result
}

// webSocketFrame is one unmasked binary message, as a server sends it.
func webSocketFrame(payload string) string {
	switch n := len(payload); {
	case n < 126:
		return "\x82" + string(rune(n)) + payload
	default:
		return "\x82\x7e" + string([]byte{byte(n >> 8), byte(n)}) + payload
	}
}

const (
	openedBoth = "\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x01\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x03"
	said200    = "\x00\x00\x00\x03\x01\x00\x00\x13HTTP/1.1 200 OK\r\n\r\n"
	saidDial   = "\x00\x00\x00\x01\x01\x00\x00\x08dial tcp\x00\x00\x00\x03\x01\x00\x00\x00"
)

// A connection that is cut within a frame, by either side, once had the reader try again for ever.
func TestACutWithinAFrameEndsTheAttempt(t *testing.T) {
	const opens, endless = "\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00", "\x00\xff\xff\xff"
	for name, frames := range map[string]string{
		"of data":           opens + "\x03\x00\x00\x00\x03" + endless,
		"of data, begun":    opens + "\x03\x00\x00\x00\x03" + endless + "HTTP/1.1 2",
		"of the error":      opens + "\x01\x00\x00\x00\x01" + endless + "dial",
		"of nobody's":       opens + "\x03\x00\x00\x00\x09" + endless + "x",
		"of control":        "\x80\x03\x00\x02\x00\x00\x00\xff\x00\x00\x00\x03",
		"before its length": opens + "\x03\x00\x00\x00\x03\x00",
	} {
		for _, webSocket := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, webSocket), func(t *testing.T) {
				sent, first := frames, ProtocolSPDY
				if webSocket {
					sent, first = webSocketFrame(frames), ProtocolWebSocket
				}
				result := askInMemory(t, (*Client).PortForward, first, func(r *http.Request) []byte {
					return append([]byte(upgradeAnswer(r, portforward.WebsocketsSPDYTunnelingPortForwardV1, portforward.PortForwardV1Name)), sent...)
				})
				if result.Outcome != OutcomeUnknown && result.Outcome != OutcomeError && result.Outcome != OutcomeRefused {
					t.Errorf("got %+v", result)
				}
				checkOwnWords(t, result)
			})
		}
	}
}

// FuzzPortForward has a peer that upgrades and then sends anything.
func FuzzPortForward(f *testing.F) {
	for _, seed := range []string{
		openedBoth + said200, openedBoth + saidDial, openedBoth, "", "\x88\x02\x03\xe8", "\x81\x01x", "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x80\x03\x00\x02\x00\xff\xff\xff", "\x89\x00" + webSocketFrame(openedBoth), strings.Repeat("\x89\x00", 1000), "HTTP/1.1 200 OK\r\n\r\n",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(webSocketFrame(seed)), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, sent []byte, webSocket bool) {
		first := ProtocolSPDY
		if webSocket {
			first = ProtocolWebSocket
		}
		result := askInMemory(t, (*Client).PortForward, first, func(r *http.Request) []byte {
			return append([]byte(upgradeAnswer(r, portforward.WebsocketsSPDYTunnelingPortForwardV1, portforward.PortForwardV1Name)), sent...)
		})
		if result.Outcome == OutcomeAccepted && !bytes.Contains(sent, []byte("200")) && !webSocket {
			t.Errorf("accepted, and nobody said 200: %q", sent)
		}
		checkOwnWords(t, result)
	})
}

// FuzzUpgrade has a peer that answers the upgrade with anything.
func FuzzUpgrade(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 403 Forbidden\r\nContent-Length: 18\r\n\r\n{\"kind\":\"Status\"}\n",
		"HTTP/1.1 500 X\r\n\r\nsandbox not found", "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20), "HTTP/1.1 429 Too Many\r\n\r\n", "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
			"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n" + openedBoth + said200, "HTTP/1.1 400 B\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, sent []byte, webSocket bool) {
		first := ProtocolSPDY
		if webSocket {
			first = ProtocolWebSocket
		}
		answer := func(*http.Request) []byte { return sent }
		checkOwnWords(t, askInMemory(t, (*Client).PortForward, first, answer))
	})
}

// FuzzExec has a peer that upgrades an exec and then sends anything.
func FuzzExec(f *testing.F) {
	for _, seed := range []string{
		"", "\x03{\"status\":\"Success\"}", "\x03{\"status\":\"Failure\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"137\"}]}}",
		"\x01out", "\x03", "\x03{", "\xff\x03", "\x03null", "\x0312", strings.Repeat("\x02", 300),
	} {
		f.Add([]byte(webSocketFrame(seed)), true)
		f.Add([]byte(webSocketFrame(seed+seed)+webSocketFrame(seed)), true)
		f.Add([]byte("\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x01\x01\x00\x00"+string(rune(len(seed)&0x7f))+seed), false)
	}
	f.Fuzz(func(t *testing.T, sent []byte, webSocket bool) {
		first := ProtocolSPDY
		if webSocket {
			first = ProtocolWebSocket
		}
		result := askInMemory(t, (*Client).Exec, first, func(r *http.Request) []byte {
			return append([]byte(upgradeAnswer(r, utilremotecommand.StreamProtocolV5Name, utilremotecommand.StreamProtocolV4Name)), sent...)
		})
		checkOwnWords(t, result)
	})
}

// ownWords are all that an attempt says of a peer, with 0 for a number. None has room for a word of the peer's.
var ownWords = []string{
	"RBAC forbids this client the subresource of the pod (0 to GET; grant \"create\" and \"get\"): not allowed by the API server",
	"RBAC forbids this client the subresource of the pod (0 to POST; grant \"create\" and \"get\"): not allowed by the API server",
	"pilot-agent exited with an unknown code",
	"pilot-agent exited with code 0",
	"pilot-agent was killed (exit code 0), as it is when its container ends",
	"the API server answered 0 to the upgrade",
	"the API server answered 0 to the upgrade: the API server is busy",
	"the API server does not know this client (0): not allowed by the API server",
	"the API server upgraded and then sent no SPDY",
	"the API server upgraded to SPDY without the stream protocol asked for",
	"the API server upgraded to WebSocket without the stream protocol asked for",
	"the agent answered 0: it takes requests from the pod's loopback alone, and this container runtime came from elsewhere",
	"the command was started and its exit code never came",
	"the connection ended before the kubelet opened the streams",
	"the connection ended before the request was sent",
	"the connection ended before the streams were opened",
	"the connection to the API server ended during the upgrade",
	"the container runtime could not connect to the status port",
	"the container runtime could not enter the pod's network namespace",
	"the container runtime finds no running sandbox: the pod no longer runs",
	"the container runtime or the kubelet failed to forward the port",
	"the container runtime or the kubelet failed to run pilot-agent",
	"the kubelet forbids the exec: not allowed by the API server",
	"the kubelet has no running sandbox or container of the pod (0): the pod no longer runs",
	"the kubelet refused to open the streams",
	"the kubelet's word on the command's end cannot be read",
	"the proxy's container no longer runs: the pod no longer runs",
	"the request was sent and the connection to the status port broke",
	"the request was sent and the stream ended without an answer",
	"the status port answered 0 instead of 0",
	"the status port answered with a header of more than 0 bytes",
	"the status port answered with more than 0 interim responses",
	"the status port answered with something that is not HTTP/0",
	"the upgrade failed with 0: the API server or the node's kubelet had an error",
	"there is no such pod (0): the pod no longer runs",
}

var number = regexp.MustCompile(`[0-9]{1,5}`)

// checkOwnWords fails where what is shown of an attempt is not one of ownWords.
func checkOwnWords(t *testing.T, result Result) {
	t.Helper()
	if result.Err == nil {
		return
	}
	if shown := number.ReplaceAllString(result.Err.Error(), "0"); !slices.Contains(ownWords, shown) {
		t.Errorf("%s: %q is none of this package's own words", result.Outcome, result.Err)
	}
}
