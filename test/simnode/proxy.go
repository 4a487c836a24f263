// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the proxy double: the status server of one Pod's pilot-agent, on the Pod's own loopback address.

package simnode

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	proxyName         = "istio-proxy"
	defaultStatusPort = 15020
)

// statusPort follows pilot-agent: the Pod's annotation, then statusPort of the mesh configuration in the annotation and
// in the environment, then 15020. 0 is no status server: that is what an annotation that is no port gives, too. The
// annotation goes through strconv.Atoi into 32 bits, whatever is lost on the way (applyAnnotations in pilot-agent).
func statusPort(pod *corev1.Pod, proxy *corev1.Container) int {
	if text, ok := pod.Annotations["status.sidecar.istio.io/port"]; ok {
		parsed, _ := strconv.Atoi(text)
		port := int32(parsed)
		if port < 1 || port > 65535 {
			return 0
		}
		return int(port)
	}
	sources := []string{pod.Annotations["proxy.istio.io/config"]}
	for _, env := range proxy.Env {
		if env.Name == "PROXY_CONFIG" {
			sources = append(sources, env.Value)
		}
	}
	for _, text := range sources {
		var config struct {
			StatusPort uint16 `json:"statusPort"`
		}
		if err := yaml.Unmarshal([]byte(text), &config); err == nil && config.StatusPort != 0 {
			return int(config.StatusPort)
		}
	}
	return defaultStatusPort
}

// double is one run of a Pod's istio-proxy container.
type double struct {
	pod       *pod
	container *container
	attempt   int // which run of the container this is
	script    ProxyScript
	drain     time.Duration
	started   time.Time
	server    *http.Server
	gone      chan struct{} // closed when the container has ended

	mu    sync.Mutex
	timer *time.Timer // opens the port late
	conns map[*doubleConn]struct{}
	ended bool
}

// startDouble opens the status port. A port that cannot be opened is as one that nobody has opened: refused.
func startDouble(p *pod, c *container, script ProxyScript, now time.Time) *double {
	d := &double{
		pod: p, container: c, attempt: c.attempts, script: script, drain: drainOf(script), started: now,
		gone: make(chan struct{}), conns: map[*doubleConn]struct{}{},
	}
	if p.statusPort == 0 || p.ip == "" {
		return d
	}
	if script.Behaviour == BehaviourRefuse {
		if script.For.Duration > 0 {
			d.timer = time.AfterFunc(script.For.Duration, d.open)
		}
		return d
	}
	d.open()
	return d
}

func drainOf(script ProxyScript) time.Duration {
	switch {
	case script.Drain.Duration == 0:
		return DefaultDrain
	case script.Drain.Duration < 0:
		return 0
	default:
		return script.Drain.Duration
	}
}

func (d *double) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(d.pod.ip, strconv.Itoa(d.pod.statusPort)))
	if err != nil {
		d.pod.fleet.log.Error(err, "A proxy double could not open its status port", "pod", d.pod.key)
		return
	}
	d.server = &http.Server{Handler: d, ReadHeaderTimeout: 30 * time.Second, ErrorLog: silent}
	d.pod.fleet.running.Go(func() { _ = d.server.Serve(&doubleListener{Listener: listener, double: d}) })
}

// close ends the container's side: the port is shut and every connection with it.
func (d *double) close() {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	d.ended = true
	close(d.gone)
	if d.timer != nil {
		d.timer.Stop()
	}
	for conn := range d.conns {
		_ = conn.TCPConn.Close()
	}
	server := d.server
	d.mu.Unlock()
	if server != nil {
		_ = server.Close() // calls back into the connections' Close
	}
}

// ServeHTTP is the status server's one endpoint that matters, with its checks in pilot-agent's order.
func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/quitquitquit" {
		http.NotFound(w, r)
		return
	}
	counters := &d.pod.fleet.counters
	counters.received.Add(1)
	// The double shares one network namespace with all others: what is the Pod's loopback there is this address here.
	if host, _, _ := net.SplitHostPort(r.RemoteAddr); host != d.pod.ip {
		counters.forbidden.Add(1)
		http.Error(w, "Only requests from localhost are allowed", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodPost {
		counters.wrongMethod.Add(1)
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		return
	}
	d.pod.noteQuit()
	behaviour := d.script.Behaviour
	if d.script.For.Duration > 0 && time.Since(d.started) >= d.script.For.Duration {
		behaviour = BehaviourExit
	}
	behaviours[behaviour](d, w)
}

// exit ends the container after a delay.
func (d *double) exit(code int32, delay time.Duration) {
	d.pod.exitAfter(d.container, d.attempt, code, delay)
}

// wait blocks until the container ends or the peer has gone.
func (d *double) wait(conn net.Conn) {
	_, _ = conn.Read(make([]byte, 1))
}

// sleep reports whether the container still runs afterwards.
func (d *double) sleep(duration time.Duration) bool {
	select {
	case <-d.gone:
		return false
	case <-time.After(duration):
		return true
	}
}

// doubleListener hands out connections that the double closes when it ends, the hijacked ones too.
type doubleListener struct {
	net.Listener
	double *double
}

type doubleConn struct {
	*net.TCPConn
	double *double
}

func (l *doubleListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &doubleConn{TCPConn: conn.(*net.TCPConn), double: l.double}
	l.double.mu.Lock()
	defer l.double.mu.Unlock()
	if l.double.ended {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.double.conns[tracked] = struct{}{}
	return tracked, nil
}

func (c *doubleConn) Close() error {
	c.double.mu.Lock()
	delete(c.double.conns, c)
	c.double.mu.Unlock()
	return c.TCPConn.Close()
}
