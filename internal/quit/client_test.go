// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a client keeps from one attempt to the next, and how it reaches the API server.

package quit

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

var job1 = Target{Namespace: "team-a", Pod: "job-1", Port: 15020}

// A real agent, asked through the whole road, quits, and a foreign peer is forbidden.
func TestPortForwardAsksTheAgent(t *testing.T) {
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		t.Run(string(first), func(t *testing.T) {
			c, a := newCluster(t), newAgent(t)
			c.set(func(c *cluster) { c.forward = dialLocalhost })
			client := c.client(first)
			target := Target{Namespace: "team-a", Pod: "job-1", Port: a.port()}

			r := client.PortForward(t.Context(), target)
			checkResult(t, r, OutcomeAccepted, nil)
			if a.asked.Load() != 1 || r.Route != RoutePortForward || r.Protocol != first {
				t.Errorf("asked %d times, result %+v", a.asked.Load(), r)
			}
			if sum := r.Timings.Connect + r.Timings.Upgrade + r.Timings.Exchange; sum <= 0 || sum > r.Duration || r.Timings.Exchange == 0 {
				t.Errorf("timings %+v of %v", r.Timings, r.Duration)
			}

			a.foreign = true
			checkResult(t, client.PortForward(t.Context(), target), OutcomeForbidden, nil)
			_ = a.Close()
			checkResult(t, client.PortForward(t.Context(), target), OutcomeRefused, nil)
			c.waitClosed()
		})
	}
}

// The request is exactly what the agent needs, and asks for nothing that a tenant's answer could use.
func TestRequest(t *testing.T) {
	c := newCluster(t)
	got := make(chan string, 1)
	c.set(func(c *cluster) {
		c.forward = func(port int32, stream io.ReadWriteCloser) error {
			if port != 15020 {
				t.Errorf("port %d", port)
			}
			got <- readRequest(stream)
			return nil
		}
	})
	c.client(ProtocolWebSocket).PortForward(t.Context(), job1)
	want := "POST /quitquitquit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// An API server that cannot do WebSocket is not asked again for ten minutes, then it is.
func TestWinnerIsRemembered(t *testing.T) {
	c := newCluster(t)
	c.set(func(c *cluster) { c.forward, c.front = says(accepted+"\r\n"), onWebSocket(plain(400, "")) })
	client := c.client("")
	attempts := func(want Protocol, wantWebSocket, wantSPDY int64) {
		t.Helper()
		r := client.PortForward(t.Context(), job1)
		if r.Outcome != OutcomeAccepted || r.Protocol != want {
			t.Errorf("got %+v, want %s", r, want)
		}
		if ws, spdy := c.upgrades(ProtocolWebSocket), c.upgrades(ProtocolSPDY); ws != wantWebSocket || spdy != wantSPDY {
			t.Errorf("%d WebSocket and %d SPDY upgrades, want %d and %d", ws, spdy, wantWebSocket, wantSPDY)
		}
	}
	attempts(ProtocolSPDY, 1, 1)
	attempts(ProtocolSPDY, 1, 2)
	attempts(ProtocolSPDY, 1, 3)

	c.set(func(c *cluster) { c.front = nil }) // the API server is upgraded, and ten minutes go by
	client.portForward.spdyUntil = client.portForward.spdyUntil.Add(-rememberSPDY)
	attempts(ProtocolWebSocket, 2, 3)
	attempts(ProtocolWebSocket, 3, 3)
}

// A failure that says nothing about the protocol changes nothing.
func TestOtherFailuresAreNotRemembered(t *testing.T) {
	for name, f := range map[string]front{"404": always(status(404)), "500": always(plain(500, "no")), "RBAC": always(status(403)), "cut": ends("")} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.set(func(c *cluster) { c.forward, c.front = says(accepted+"\r\n"), f })
			client := c.client("")
			client.PortForward(t.Context(), job1)
			c.set(func(c *cluster) { c.front = nil })
			if r := client.PortForward(t.Context(), job1); r.Protocol != ProtocolWebSocket || r.Outcome != OutcomeAccepted {
				t.Errorf("got %+v, want WebSocket", r)
			}
		})
	}
}

// Where a WebSocket upgrade hangs until the deadline, the next attempt begins with SPDY.
func TestHungUpgradeTriesTheOtherNext(t *testing.T) {
	c := newCluster(t)
	hang := hangs("")
	c.set(func(c *cluster) {
		c.forward = says(accepted + "\r\n")
		c.front = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodGet {
				hang(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		}
	})
	client := c.client("")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	checkResult(t, client.PortForward(ctx, job1), OutcomeTimeout, context.DeadlineExceeded)
	checkResult(t, client.PortForward(t.Context(), job1), OutcomeAccepted, nil)
}

// A second attempt resumes the TLS session of the first, whatever the protocol.
func TestTLSResumes(t *testing.T) {
	c := newCluster(t)
	c.set(func(c *cluster) { c.forward = says(accepted + "\r\n") })
	client := c.client(ProtocolWebSocket)
	for range 3 {
		checkResult(t, client.PortForward(t.Context(), job1), OutcomeAccepted, nil)
	}
	client.portForward.prefer(ProtocolSPDY, time.Now())
	checkResult(t, client.PortForward(t.Context(), job1), OutcomeAccepted, nil)
	if got := c.resumed.Load(); got != 3 {
		t.Errorf("%d of 4 handshakes resumed, want 3", got)
	}
}

// A caller that cancels gets an error that says so, and gets it at once, wherever the attempt is.
func TestCancel(t *testing.T) {
	for name, f := range map[string]front{"at the upgrade": hangs(""), "after the request": nil} {
		for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
			t.Run(name+"/"+string(first), func(t *testing.T) {
				c := newCluster(t)
				c.set(func(c *cluster) { c.forward, c.front = saysAndStays(""), f })
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				r := c.client(first).PortForward(ctx, job1)
				checkResult(t, r, OutcomeError, context.Canceled)
				if r.Duration > time.Second {
					t.Errorf("took %v", r.Duration)
				}
				c.waitClosed()
			})
		}
	}
}

// A server, or a proxy before it, that takes the connection and never speaks is bounded as all else is.
func TestSilentPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var open atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
				open.Add(-1)
			}()
		}
	}()
	silent := "http://" + l.Addr().String()
	for name, config := range map[string]*rest.Config{
		"before TLS":              {Host: "https://" + l.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"at CONNECT":              {Host: "https://192.0.2.1", Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(silent) }},
		"at SOCKS":                {Host: "https://192.0.2.1", Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("socks5://" + l.Addr().String()) }},
		"before an answer, plain": {Host: silent},
	} {
		for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
			for _, how := range []string{"deadline", "cancel"} {
				t.Run(name+"/"+string(first)+"/"+how, func(t *testing.T) {
					client, err := NewClient(config)
					if err != nil {
						t.Fatal(err)
					}
					client.portForward.prefer(first, time.Now())
					ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
					want, wantErr := OutcomeTimeout, context.DeadlineExceeded
					if how == "cancel" {
						cancel()
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(150*time.Millisecond, cancel)
						want, wantErr = OutcomeError, context.Canceled
					}
					defer cancel()
					r := client.PortForward(ctx, job1)
					checkResult(t, r, want, wantErr)
					if r.Duration > 2*time.Second {
						t.Errorf("took %v", r.Duration)
					}
					for end := time.Now().Add(5 * time.Second); open.Load() != 0; time.Sleep(time.Millisecond) {
						if time.Now().After(end) {
							t.Fatal("the connection is still open")
						}
					}
				})
			}
		}
	}
}

// No API server at all is an error that says so.
func TestNoServer(t *testing.T) {
	client, err := NewClient(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, client.PortForward(t.Context(), job1), OutcomeError, nil)
}

// The way in: an HTTP proxy, a token in a file, impersonation.
func TestConfigIsHonoured(t *testing.T) {
	c := newCluster(t)
	headers := make(chan http.Header, 2)
	c.set(func(c *cluster) {
		c.forward = says(accepted + "\r\n")
		c.front = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			headers <- r.Header.Clone()
			next.ServeHTTP(w, r)
		}
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("operator-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var connects []string
	proxy := newConnectProxy(t, &connects)
	config := c.config()
	config.BearerToken, config.BearerTokenFile = "", token
	config.Impersonate.UserName = "jane"
	config.UserAgent = "jobmesh-test"
	config.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		client.portForward.prefer(first, time.Now())
		if r := client.PortForward(t.Context(), job1); r.Outcome != OutcomeAccepted || r.Protocol != first {
			t.Fatalf("got %+v", r)
		}
		h := <-headers
		if h.Get("Impersonate-User") != "jane" || h.Get("User-Agent") != "jobmesh-test" {
			t.Errorf("%s: headers %v", first, h)
		}
	}
	host := c.api.Listener.Addr().String()
	auth := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:p"))
	if diff := cmp.Diff([]string{host + " " + auth, host + " " + auth}, connects); diff != "" {
		t.Errorf("CONNECT (-want +got):\n%s", diff)
	}
}

// newConnectProxy is an HTTP proxy that notes what it was asked for.
func newConnectProxy(t *testing.T, connects *[]string) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			*connects = append(*connects, req.Host+" "+req.Header.Get("Proxy-Authorization"))
			up, err := net.Dial("tcp", req.Host)
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { _, _ = io.Copy(up, conn); _ = up.Close() }()
			go func() { _, _ = io.Copy(conn, up); _ = conn.Close() }()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("u", "p")}
}

func TestBadTargets(t *testing.T) {
	c := newCluster(t)
	client := c.client("")
	for name, target := range map[string]Target{
		"no namespace": {Pod: "p", Port: 1, Container: "c"},
		"no pod":       {Namespace: "n", Port: 1, Container: "c"},
		"a path":       {Namespace: "n", Pod: "../x", Port: 1, Container: "c"},
		"up":           {Namespace: "..", Pod: "p", Port: 1, Container: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			checkResult(t, client.PortForward(t.Context(), target), OutcomeError, nil)
			checkResult(t, client.Exec(t.Context(), target), OutcomeError, nil)
		})
	}
	for _, port := range []int32{0, -1, 65536} {
		checkResult(t, client.PortForward(t.Context(), Target{Namespace: "n", Pod: "p", Port: port}), OutcomeError, nil)
	}
	checkResult(t, client.Exec(t.Context(), Target{Namespace: "n", Pod: "p"}), OutcomeError, nil)
	if c.opened.Load() != 0 {
		t.Errorf("%d connections for targets that make no sense", c.opened.Load())
	}
	if _, err := NewClient(&rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("no")}}); err == nil {
		t.Error("a bad CA was taken")
	}
	if errors.Is(ErrPodGone, ErrNotAllowed) {
		t.Error("causes are not distinct")
	}
}
