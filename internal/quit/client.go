// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The client of one API server: what is built once, and the two questions it asks.

package quit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Client asks proxies to quit through one API server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	// Both take an upgrade request and answer 101 with a body that is the upgraded connection.
	webSocket http.RoundTripper
	spdy      http.RoundTripper

	portForward preference
	exec        preference
	preludes    sync.Map // of int32 to []byte, see portForwardPrelude
}

// NewClient returns a client for the API server of config, with its TLS, authentication, impersonation and HTTP proxy.
// What can be built once is built here; an attempt costs one connection and little else. It does no network I/O.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transportConfig, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the transport configuration: %w", err)
	}
	tlsConfig, err := tlsConfigFor(transportConfig)
	if err != nil {
		return nil, fmt.Errorf("reading the TLS configuration: %w", err)
	}

	dial := dialFunc((&net.Dialer{}).DialContext)
	if transportConfig.DialHolder != nil {
		dial = transportConfig.DialHolder.Dial
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}

	c := &Client{base: base}
	c.webSocket, err = transport.HTTPWrappersForConfig(transportConfig, &webSocketTransport{dialer: websocket.Dialer{
		NetDialContext:  dial.ofAttempt,
		Proxy:           proxy,
		TLSClientConfig: tlsConfig,
	}})
	if err != nil {
		return nil, fmt.Errorf("building the WebSocket transport: %w", err)
	}
	c.spdy, err = transport.HTTPWrappersForConfig(transportConfig, &http.Transport{
		DialContext:            dial.ofAttempt,
		Proxy:                  proxy,
		TLSClientConfig:        tlsConfig,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/2 has no upgrade to SPDY
		DisableKeepAlives:      true,                                                   // one connection per attempt, none left over
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxUpgradeHeaderBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("building the SPDY transport: %w", err)
	}
	return c, nil
}

// tlsConfigFor returns the TLS configuration for both transports, with a session cache, so that one attempt after another
// resumes instead of shaking hands in full. A client certificate forbids it: a resumed session keeps the identity it began with, and
// a rotated certificate has to count from the next attempt on.
func tlsConfigFor(config *transport.Config) (*tls.Config, error) {
	tlsConfig, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	if tlsConfig.GetClientCertificate == nil {
		tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	return tlsConfig, nil
}

// PortForward sends POST /quitquitquit to t.Port on the loopback of the pod. It is bounded by ctx alone, from the dial
// to the answer: give it a deadline.
func (c *Client) PortForward(ctx context.Context, t Target) Result {
	a, end := begin(ctx)
	defer end()
	return c.run(a, RoutePortForward, func(r *Result) *failure {
		if err := t.validate(); err != nil {
			return failed(OutcomeError, err)
		}
		if t.Port < 1 || t.Port > 65535 {
			return failed(OutcomeError, fmt.Errorf("the status port must be 1 to 65535, not %d", t.Port))
		}
		return c.askByPortForward(a, t, r)
	})
}

// Exec runs "pilot-agent request POST quitquitquit" in t.Container. It is bounded by ctx alone: give it a deadline.
func (c *Client) Exec(ctx context.Context, t Target) Result {
	a, end := begin(ctx)
	defer end()
	return c.run(a, RouteExec, func(r *Result) *failure {
		if err := t.validate(); err != nil {
			return failed(OutcomeError, err)
		}
		if t.Container == "" {
			return failed(OutcomeError, errors.New("the proxy's container must be named"))
		}
		return c.askByExec(a, t, r)
	})
}

// run turns what ask returns, nil for accepted, into a Result.
func (c *Client) run(a *attempt, route Route, ask func(*Result) *failure) Result {
	r := Result{Outcome: OutcomeAccepted, Route: route}
	if f := ask(&r); f != nil {
		r.Outcome, r.Err = f.outcome, f.err
	}
	r.Duration = time.Since(a.began)
	return r
}

// validate keeps names that would change the path of the request out of it.
func (t Target) validate() error {
	for _, name := range []string{t.Namespace, t.Pod} {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/%?#") {
			return errors.New("the namespace and the pod must be named by valid names")
		}
	}
	return nil
}

// url returns the address of a subresource of t's pod.
func (c *Client) url(t Target, subresource string, query url.Values) *url.URL {
	u := c.base.JoinPath("api", "v1", "namespaces", t.Namespace, "pods", t.Pod, subresource)
	u.RawQuery = query.Encode()
	return u
}
