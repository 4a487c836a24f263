// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Faults of the network between operator and API server, below TLS: toxiproxy's, and connections that both ends believe in.

package faults

import (
	"bytes"
	"encoding/json"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"
)

// toxic is one of toxiproxy's, by its type and attributes.
type toxic struct {
	kind       string
	attributes map[string]int
}

// poisoned is a connection to the API server through toxiproxy.
type poisoned struct {
	proxy  *toxiproxy.Proxy
	toxics []toxic
}

// connect puts toxiproxy in between.
func (p *poisoned) connect(t *testing.T, s *stage) *rest.Config {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p.proxy = toxiproxy.NewProxy(server, "api-server", "127.0.0.1:0", hostOf(t, s.account))
	if err := p.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Stop)
	return throughAddress(s.account, p.proxy.Listen)
}

// on adds the toxics both ways.
func (p *poisoned) on(t *testing.T) {
	t.Helper()
	for _, toxic := range p.toxics {
		for _, direction := range []string{"upstream", "downstream"} {
			text, err := json.Marshal(map[string]any{
				"name": toxic.kind + "-" + direction, "type": toxic.kind, "stream": direction, "attributes": toxic.attributes,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (p *poisoned) off(t *testing.T) { p.proxy.Toxics.ResetToxics(t.Context()) }

// forgetful is a relay that can forget its connections, as a firewall does whose table is lost: nothing passes any more and nobody is
// told. New connections work.
type forgetful struct {
	listener net.Listener

	mu         sync.Mutex
	generation int
	conns      []net.Conn
}

func (f *forgetful) connect(t *testing.T, s *stage) *rest.Config {
	t.Helper()
	var err error
	if f.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	upstream := hostOf(t, s.account)
	go func() {
		for {
			client, err := f.listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp4", upstream)
			if err != nil {
				_ = client.Close()
				continue
			}
			f.mu.Lock()
			generation := f.generation
			f.conns = append(f.conns, client, server)
			f.mu.Unlock()
			go f.relay(server, client, generation)
			go f.relay(client, server, generation)
		}
	}()
	t.Cleanup(func() {
		_ = f.listener.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, conn := range f.conns {
			_ = conn.Close()
		}
	})
	return throughAddress(s.account, f.listener.Addr().String())
}

// relay passes on what comes, until its connection is forgotten: then it swallows it, the end included.
func (f *forgetful) relay(to, from net.Conn, generation int) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		f.mu.Lock()
		forgotten := f.generation != generation
		f.mu.Unlock()
		switch {
		case forgotten && err != nil:
			return
		case forgotten:
			continue
		case n > 0:
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

func (f *forgetful) on(*testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
}

func hostOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// throughAddress is config by another address, whose certificate is the API server's own.
func throughAddress(config *rest.Config, address string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = "https://" + address
	return config
}

func TestNetwork(t *testing.T) {
	toxics := map[string]struct {
		title, effect string
		toxics        []toxic
		hold          time.Duration
		slow          bool
	}{
		"latency": {
			"slow network", "each way takes 2 s ± 1 s", []toxic{{"latency", map[string]int{"latency": 2000, "jitter": 1000}}}, 25 * time.Second, true,
		},
		"resets": {
			"TCP resets", "every connection is reset half a second after its first byte, unanswered", []toxic{{"reset_peer", map[string]int{"timeout": 500}}}, 20 * time.Second, false,
		},
		"bandwidth": {
			"thin network", "5 kB/s for all that a connection carries", []toxic{{"bandwidth", map[string]int{"rate": 5}}}, 25 * time.Second, true,
		},
		"black hole": {
			"black hole", "nothing passes; no connection ends", []toxic{{"timeout", map[string]int{"timeout": 0}}}, 20 * time.Second, false,
		},
	}
	for name, tc := range toxics {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && tc.slow {
				t.Skip("takes as long as a slow network takes")
			}
			p := &poisoned{toxics: tc.toxics}
			play(t, shared, fault{title: tc.title, effect: tc.effect, connect: p.connect, on: p.on, off: p.off, hold: tc.hold})
		})
	}
	t.Run("forgotten connections", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("takes as long as a client takes to miss its connection")
		}
		f := &forgetful{}
		play(t, shared, fault{
			title: "forgotten connections", effect: "what is open goes silent for good, and no end is told; new connections work",
			connect: f.connect, on: f.on, off: func(*testing.T) {},
		})
	})
}
