// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A gateway in front of the API server that speaks HTTP, so that it can answer in its stead or cut what it passes on.

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// trouble decides what becomes of one request: it answers, or has pass do it.
type trouble func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// gateway is an HTTP proxy, for upgrades too.
type gateway struct {
	pass    http.Handler
	trouble atomic.Pointer[trouble]
	// expired counts the watches that were told that their resource version is too old.
	expired atomic.Int64
	// politely has watches end as an API server ends them. Otherwise their streams are reset.
	politely atomic.Bool

	mu      sync.Mutex
	watches map[*http.Request]context.CancelFunc
}

func (g *gateway) connect(t *testing.T, s *stage) *rest.Config {
	t.Helper()
	g.watches = map[*http.Request]context.CancelFunc{}
	upstream, err := url.Parse(s.account.Host)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(s.account)
	if err != nil {
		t.Fatal(err)
	}
	requests := &http.Transport{TLSClientConfig: tlsConfig.Clone(), ForceAttemptHTTP2: true}
	// HTTP/2 has no upgrades.
	upgrades := &http.Transport{TLSClientConfig: tlsConfig.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	t.Cleanup(requests.CloseIdleConnections)
	t.Cleanup(upgrades.CloseIdleConnections)
	g.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Upgrade") != "" {
				return upgrades.RoundTrip(r)
			}
			return requests.RoundTrip(r)
		}),
		FlushInterval:  -1, // a watch's events are passed on as they come
		ModifyResponse: g.read,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if there were no gateway
		ErrorLog:       silent,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = silent
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := rest.CopyConfig(s.account)
	config.Host = server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return config
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	if isWatch(r) {
		client := r.Context()
		ctx, cancel := context.WithCancel(client)
		defer cancel()
		r = r.WithContext(ctx)
		defer func() {
			// A panic resets the stream. Without it the watch ends as an API server ends one, and the client resumes it.
			if client.Err() == nil && g.politely.Load() && recover() != nil {
				return
			}
		}()
		g.mu.Lock()
		g.watches[r] = cancel
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.watches, r)
		}()
	}
	if trouble := g.trouble.Load(); trouble != nil {
		(*trouble)(w, r, g.pass)
		return
	}
	g.pass.ServeHTTP(w, r)
}

// cutWatches ends every watch that is open.
func (g *gateway) cutWatches() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cancel := range g.watches {
		cancel()
	}
}

// begin returns a fault's beginning, end its end.
func (g *gateway) begin(trouble trouble) func(*testing.T) {
	return func(*testing.T) { g.trouble.Store(&trouble) }
}

func (g *gateway) end(*testing.T) { g.trouble.Store(nil) }

// read looks into the answers to watches.
func (g *gateway) read(response *http.Response) error {
	if !isWatch(response.Request) {
		return nil
	}
	if response.StatusCode == http.StatusGone {
		g.expired.Add(1)
	}
	response.Body = &watched{ReadCloser: response.Body, seen: func(text []byte) {
		if bytes.Contains(text, []byte("Expired")) {
			g.expired.Add(1)
		}
	}}
	return nil
}

type watched struct {
	io.ReadCloser
	seen func([]byte)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.seen(p[:n])
	return n, err
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
