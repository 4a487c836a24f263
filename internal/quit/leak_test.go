// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// After an attempt nothing remains: two hundred attempts by each protocol, every outcome in turn, and nobody is left on either side.

package quit

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestNothingRemains(t *testing.T) {
	expire := make(chan struct{}, 1)
	turns := []struct {
		forward      forward
		front        front
		kubeletFront front
		want         Outcome
	}{
		{forward: says(accepted + "\r\n"), want: OutcomeAccepted},
		{forward: saysAndStays(accepted + "\r\n"), want: OutcomeAccepted},
		{forward: fails(refusedByContainerd), want: OutcomeRefused},
		{forward: says("HTTP/1.1 403 Forbidden\r\n\r\n"), want: OutcomeForbidden},
		{forward: saysForEver(accepted, "X: "+tenant+"\r\n"), want: OutcomeRejected},
		{
			forward: func(_ int32, stream io.ReadWriteCloser) error {
				readRequest(stream)
				time.AfterFunc(5*time.Millisecond, func() { expire <- struct{}{} })
				_, _ = io.Copy(io.Discard, stream)
				return nil
			},
			want: OutcomeTimeout,
		},
		{
			front: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				expire <- struct{}{}
				hangs("")(w, r, next)
			},
			want: OutcomeTimeout,
		},
		{forward: says(""), want: OutcomeUnknown},
		{front: always(status(404)), want: OutcomeError},
		{front: ends(""), want: OutcomeError},
	}
	before := goleak.IgnoreCurrent()
	c := newCluster(t)
	client := c.client("")
	for i := range 40 {
		first := []Protocol{ProtocolWebSocket, ProtocolSPDY}[i%2]
		for _, turn := range turns {
			c.set(func(c *cluster) { c.forward, c.front, c.kubeletFront = turn.forward, turn.front, turn.kubeletFront })
			client.portForward.prefer(first, time.Now())
			ctx, cancel := expiring(t.Context(), expire)
			r := client.PortForward(ctx, job1)
			cancel()
			if r.Outcome != turn.want {
				t.Fatalf("round %d: outcome %s (%v), want %s", i, r.Outcome, r.Err, turn.want)
			}
		}
	}
	c.waitClosed()
	c.close()
	// Both sides run in this process: what the attempts left with the servers would be found, too.
	var leak error
	for range 10 { // goleak by itself gives up after about a second
		if leak = goleak.Find(before); leak == nil {
			break
		}
	}
	if leak != nil {
		t.Error(leak)
	}
	t.Logf("%d connections opened, all closed", c.opened.Load())
}

// expired is a context whose end counts as its deadline.
type expired struct{ context.Context }

func (c expired) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// expiring returns a context whose deadline passes when the test says so: a server that loses its client in the midst of opening
// streams leaks for its own reasons, which a deadline by the clock would meet now and then.
func expiring(parent context.Context, now <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(parent, 10*time.Second)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-now:
			cancel()
		case <-ctx.Done():
		}
	})
	return expired{ctx}, func() {
		cancel()
		wg.Wait()
	}
}

// What one attempt costs beside the server that runs in the same process.
func BenchmarkAttempt(b *testing.B) {
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		b.Run(string(first), func(b *testing.B) {
			c := newCluster(b)
			c.set(func(c *cluster) { c.forward = says(accepted + "\r\n") })
			client := c.client(first)
			b.ReportAllocs()
			for b.Loop() {
				if r := client.PortForward(b.Context(), job1); r.Outcome != OutcomeAccepted {
					b.Fatalf("outcome %s: %v", r.Outcome, r.Err)
				}
			}
		})
	}
}
