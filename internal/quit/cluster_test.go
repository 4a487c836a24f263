// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The other side of an attempt, on loopback: an API server made of the real one's upgrade and tunnelling handlers, a kubelet made of the
// container runtimes' real streaming server, and a pod whose behaviour each test writes.

package quit

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	proxyutil "k8s.io/apimachinery/pkg/util/proxy"
	apiproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	criportforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	criremotecommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // the servers' side of what is made to fail here
	m.Run()
}

// tenant is in every byte that a pod or runtime of these tests sends, and must be in none that a Result shows.
const tenant = "t3nant"

// forward is how a runtime forwards one port; an error goes to the error stream.
type forward func(port int32, stream io.ReadWriteCloser) error

// command is how a runtime runs one command.
type command func(cmd []string, container string, stdout, stderr io.Writer) error

// cluster is an API server with one kubelet and one pod.
type cluster struct {
	t       testing.TB
	api     *httptest.Server
	kubelet *httptest.Server
	opened  atomic.Int64 // connections to the API server, ever
	open    atomic.Int64 // and now
	resumed atomic.Int64 // TLS sessions that were resumed
	served  sync.Map     // of Protocol to *atomic.Int64: upgrade requests seen

	mu      sync.Mutex
	forward forward
	command command
	// front stands before the API server's handler, kubeletFront before the kubelet's.
	front        func(w http.ResponseWriter, r *http.Request, next http.Handler)
	kubeletFront func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t}
	c.kubelet = httptest.NewServer(http.HandlerFunc(c.serveKubelet))
	c.api = httptest.NewUnstartedServer(http.HandlerFunc(c.serveAPI))
	c.api.Listener = &countingListener{Listener: c.api.Listener, cluster: c}
	c.api.TLS = &tls.Config{VerifyConnection: func(state tls.ConnectionState) error {
		if state.DidResume {
			c.resumed.Add(1)
		}
		return nil
	}}
	c.api.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.api.StartTLS()
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	c.api.Close()
	c.kubelet.Close()
}

// config is a client's way in, as a pod of the cluster has it.
func (c *cluster) config() *rest.Config {
	return &rest.Config{
		Host:        c.api.URL,
		BearerToken: "operator-token",
		TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.api.Certificate().Raw}),
		},
	}
}

// client prefers the protocol given, for both routes; the empty one leaves the choice as it is.
func (c *cluster) client(first Protocol) *Client {
	c.t.Helper()
	client, err := NewClient(c.config())
	if err != nil {
		c.t.Fatalf("NewClient: %v", err)
	}
	client.portForward.prefer(first, time.Now())
	client.exec.prefer(first, time.Now())
	return client
}

func (c *cluster) set(change func(c *cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// waitClosed waits until the API server has no connection any more.
func (c *cluster) waitClosed() {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); c.open.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("the API server still has %d of %d connections", c.open.Load(), c.opened.Load())
		}
	}
}

func (c *cluster) upgrades(p Protocol) int64 {
	n, _ := c.served.LoadOrStore(p, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

func (c *cluster) serveAPI(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	front := c.front
	c.mu.Unlock()
	p := ProtocolSPDY
	if wsstream.IsWebSocketRequest(r) {
		p = ProtocolWebSocket
	}
	n, _ := c.served.LoadOrStore(p, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)

	var next http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.Header.Get("Authorization"), "Bearer operator-token"; got != want {
			answerStatus(w, http.StatusUnauthorized)
			return
		}
		location, err := url.Parse(c.kubelet.URL)
		if err != nil {
			panic(err)
		}
		location.Path, location.RawQuery = r.URL.Path, kubeletQuery(r.URL.Query()).Encode()
		var handler http.Handler = proxyutil.NewUpgradeAwareHandler(location, nil, false, true, proxyutil.NewErrorResponder(responder{w}))
		switch {
		case p == ProtocolWebSocket && strings.HasSuffix(r.URL.Path, "/exec"):
			handler = apiproxy.NewStreamTranslatorHandler(location, http.DefaultTransport, 0, apiproxy.Options{Stdout: true, Stderr: true})
		case p == ProtocolWebSocket:
			handler = apiproxy.NewTunnelingHandler(handler)
		}
		handler.ServeHTTP(w, r)
	})
	if front != nil {
		front(w, r, next)
		return
	}
	next.ServeHTTP(w, r)
}

// kubeletQuery translates an API server's exec options into a kubelet's.
func kubeletQuery(q url.Values) url.Values {
	out := url.Values{}
	out["command"] = q["command"]
	out["container"] = q["container"]
	for from, to := range map[string]string{"stdout": criremotecommand.ExecStdoutParam, "stderr": criremotecommand.ExecStderrParam} {
		if q.Get(from) == "true" {
			out.Set(to, "1")
		}
	}
	return out
}

type responder struct{ w http.ResponseWriter }

func (r responder) Error(err error) { http.Error(r.w, err.Error(), http.StatusInternalServerError) }

func (c *cluster) serveKubelet(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	front, forward, command := c.kubeletFront, c.forward, c.command
	c.mu.Unlock()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/namespaces/team-a/pods/job-1/portforward"):
			criportforward.ServePortForward(w, r, forward, "job-1", "", nil, time.Minute, 10*time.Second, criportforward.SupportedProtocols)
		case strings.HasSuffix(r.URL.Path, "/namespaces/team-a/pods/job-1/exec"):
			options, err := criremotecommand.NewOptions(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			q := r.URL.Query()
			criremotecommand.ServeExec(w, r, command, "job-1", "", q.Get("container"), q["command"], options, time.Minute,
				10*time.Second, criremotecommand.SupportedStreamingProtocols)
		default:
			http.Error(w, "pod does not exist", http.StatusNotFound)
		}
	})
	if front != nil {
		front(w, r, next)
		return
	}
	next.ServeHTTP(w, r)
}

// PortForward implements the runtime's half of the streaming server.
func (f forward) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return f(port, stream)
}

// ExecInContainer implements the runtime's half of the streaming server.
func (f command) ExecInContainer(_ context.Context, _, _, container string, cmd []string, _ io.Reader, stdout, stderr io.WriteCloser,
	_ bool, _ <-chan criremotecommand.TerminalSize, _ time.Duration) error {
	return f(cmd, container, stdout, stderr)
}

// answerStatus answers as an API server does for itself.
func answerStatus(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: "pods \"job-1\": " + http.StatusText(code) + strings.Repeat(" and why", 200),
	})
}

// agent is a double of pilot-agent's status server: it checks the peer, then the method, answers and exits, in this order.
type agent struct {
	net.Listener
	foreign bool         // the runtime comes from outside the pod's loopback
	asked   atomic.Int64 // how often it accepted
}

func newAgent(t testing.TB) *agent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	a := &agent{Listener: l}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		switch {
		case r.URL.Path != "/quitquitquit":
			http.NotFound(w, r)
		case a.foreign || !net.ParseIP(host).IsLoopback():
			http.Error(w, "Only requests from localhost are allowed", http.StatusForbidden)
		case r.Method != http.MethodPost:
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		default:
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "OK")
			a.asked.Add(1)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return a
}

func (a *agent) port() int32 { return int32(a.Addr().(*net.TCPAddr).Port) }

// dialLocalhost forwards as containerd does: to localhost, with its words where it cannot.
func dialLocalhost(port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp4", fmt.Sprintf("localhost:%d", port))
	if err != nil {
		return fmt.Errorf("failed to execute portforward in network namespace %q: failed to connect to localhost:%d inside namespace %q, "+
			"IPv4: %w IPv6 dial tcp6 [::1]:%d: connect: connection refused", "/var/run/netns/"+tenant, port, tenant, err, port)
	}
	defer func() { _ = conn.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(conn, stream)
		_ = conn.Close()
	}()
	_, err = io.Copy(stream, conn)
	_ = stream.Close()
	if err != nil && !strings.Contains(err.Error(), "use of closed") {
		return fmt.Errorf("failed to execute portforward in network namespace %q: %w", "/var/run/netns/"+tenant, err)
	}
	return nil
}

// readRequest reads the request off a stream, as far as its empty line.
func readRequest(stream io.Reader) string {
	var got strings.Builder
	for r := bufio.NewReader(stream); ; {
		line, err := r.ReadString('\n')
		got.WriteString(line)
		if err != nil || line == "\r\n" {
			return got.String()
		}
	}
}

// says is a pod that reads the request, sends text and ends the stream.
func says(text string) forward {
	return func(_ int32, stream io.ReadWriteCloser) error {
		readRequest(stream)
		_, _ = io.WriteString(stream, text)
		return nil
	}
}

// saysAndStays sends text and then holds the stream until the client goes.
func saysAndStays(text string) forward {
	return func(_ int32, stream io.ReadWriteCloser) error {
		readRequest(stream)
		_, _ = io.WriteString(stream, text)
		_, _ = io.Copy(io.Discard, stream)
		return nil
	}
}

// saysForEver sends start and then text again and again until the client goes.
func saysForEver(start, text string) forward {
	return func(_ int32, stream io.ReadWriteCloser) error {
		readRequest(stream)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, stream)
		}()
		for _, err := io.WriteString(stream, start); err == nil; _, err = io.WriteString(stream, text) {
			select {
			case <-gone:
				return nil
			default:
			}
		}
		<-gone
		return nil
	}
}

// fails is a runtime that cannot forward, and says why.
func fails(text string) forward {
	return func(int32, io.ReadWriteCloser) error { return fmt.Errorf("%s", text) }
}

// hangs holds a connection that was hijacked, after writing first, until the other side goes, or for two seconds: an API server that
// waits for a kubelet does not see its client go.
func hangs(first string) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, first)
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		_, _ = io.Copy(io.Discard, buf)
	}
}

// countingListener counts the connections that are open.
type countingListener struct {
	net.Listener
	cluster *cluster
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.cluster.opened.Add(1)
	l.cluster.open.Add(1)
	return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { l.cluster.open.Add(-1) })}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
