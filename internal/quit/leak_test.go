// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// After an attempt nothing remains: two hundred attempts by each protocol, every outcome in turn, and nobody is left on either side.

package quit

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestNothingRemains(t *testing.T) {
	quick := 30 * time.Millisecond
	turns := []struct {
		forward      forward
		front        front
		kubeletFront front
		timeout      time.Duration
		want         Outcome
	}{
		{forward: says(accepted + "\r\n"), want: OutcomeAccepted},
		{forward: saysAndStays(accepted + "\r\n"), want: OutcomeAccepted},
		{forward: fails(refusedByContainerd), want: OutcomeRefused},
		{forward: says("HTTP/1.1 403 Forbidden\r\n\r\n"), want: OutcomeForbidden},
		{forward: saysForEver(accepted, "X: "+tenant+"\r\n"), want: OutcomeRejected},
		{forward: saysAndStays(""), timeout: quick, want: OutcomeTimeout},
		{front: hangs(""), timeout: quick, want: OutcomeTimeout},
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
			timeout := 10 * time.Second
			if turn.timeout != 0 {
				timeout = turn.timeout
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			r := client.PortForward(ctx, job1)
			cancel()
			if r.Outcome != turn.want && turn.timeout == 0 {
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

// An attempt's client runs a handful of goroutines at most, or an operator with 64 in flight would carry hundreds.
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
