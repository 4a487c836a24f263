// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds a node's HTTPS server: the part of the kubelet's API that the API server calls.

package simnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// The kubelet's and containerd's own bounds on streams.
const (
	streamIdleTimeout     = 4 * time.Hour
	streamCreationTimeout = 30 * time.Second
)

func (n *Node) newServer(certificate tls.Certificate) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.servePortForward)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Stop waits for handlers, also for those that took their connection over.
			n.fleet.running.Add(1)
			defer n.fleet.running.Done()
			if n.offline.Load() {
				n.blocked(r.Context())
				panic(http.ErrAbortHandler)
			}
			mux.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          silent,
		// No HTTP/2: a SPDY upgrade needs a connection of its own. No client certificate is asked for: nothing but simulated
		// containers is behind this port.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Protocols: http1(),
	}
}

func http1() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return protocols
}

func (n *Node) servePortForward(w http.ResponseWriter, r *http.Request) {
	counters := &n.fleet.counters
	counters.portForwards.Add(1)
	counters.openForwards.Add(1)
	defer counters.openForwards.Add(-1)
	switch Fault(n.fault.Load()) {
	case FaultHangBeforeUpgrade:
		n.blocked(r.Context())
		panic(http.ErrAbortHandler)
	case FaultServerError:
		http.Error(w, "rpc error: code = Unavailable desc = simulated", http.StatusInternalServerError)
		return
	}
	p := n.fleet.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil || p.node != n {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	if err := p.sandboxError(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	portforward.ServePortForward(w, r, &forwarder{ctx: ctx, node: n, pod: p}, r.PathValue("pod"), "",
		&portforward.V4Options{}, streamIdleTimeout, streamCreationTimeout, portforward.SupportedProtocols)
}

func (n *Node) serveExec(w http.ResponseWriter, r *http.Request) {
	p := n.fleet.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil || p.node != n {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	container := r.PathValue("container")
	if err := p.execError(container); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	remotecommand.ServeExec(w, r, executor{pod: p}, p.key, "", container, r.URL.Query()["command"], options,
		streamIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// trackingListener can close every connection it handed out, the hijacked ones too.
type trackingListener struct {
	net.Listener
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	listener *trackingListener
}

func newTrackingListener(address string) (*trackingListener, error) {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, err
	}
	return &trackingListener{Listener: l, conns: map[*trackedConn]struct{}{}}, nil
}

func (l *trackingListener) port() int32 { return int32(l.Addr().(*net.TCPAddr).Port) }

func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

func (l *trackingListener) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Conn.Close()
	}
	clear(l.conns)
}

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// newCertificate is self-signed: an API server without --kubelet-certificate-authority does not check it.
func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "simnode"},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.ParseIP(nodeIP)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
