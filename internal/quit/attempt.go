// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// One attempt: a context, and every connection that was dialled on its behalf.

package quit

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxAttemptBytes bounds what one attempt reads off the network, TLS and everything within it included. A usual attempt reads some
// 4 KiB. None of the parsers in between has to be trusted with a bound of its own.
const maxAttemptBytes = 1 << 20

// errTooMuch is met by those who read beyond it.
var errTooMuch = errors.New("more than an attempt may read")

// attempt owns the connections of one attempt and closes them when its context ends. Closing the connection under everything
// else is the only way out of a TLS handshake, a proxy's CONNECT, an upgrade or a stream that hangs, so it is the one used for all.
type attempt struct {
	ctx   context.Context
	began time.Time

	mu     sync.Mutex
	over   bool
	conns  []net.Conn
	budget atomic.Int64
	got    time.Time // when the connection to the API server stood, zero before
	wanted time.Time
}

type attemptKey struct{}

// begin returns an attempt bounded by ctx, and what ends it.
func begin(ctx context.Context) (*attempt, func()) {
	a := &attempt{began: time.Now()}
	a.budget.Store(maxAttemptBytes)
	// The transport of net/http detaches the dialling from the request's cancellation but keeps the context's values: the
	// attempt travels as a value, so that the dialler finds the context that counts.
	ctx = context.WithValue(ctx, attemptKey{}, a)
	a.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { a.connected() }})
	stop := context.AfterFunc(ctx, a.close)
	return a, func() {
		stop()
		a.close()
	}
}

// close closes every connection of the attempt and lets no new one in.
func (a *attempt) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, conn := range a.conns {
		_ = conn.Close()
	}
	a.conns = nil
}

// hold makes conn the attempt's, or closes it where the attempt is over.
func (a *attempt) hold(conn net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		_ = conn.Close()
		return false
	}
	a.conns = append(a.conns, conn)
	return true
}

// dialing marks the start of a connection, connected its end.
func (a *attempt) dialing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted, a.got = time.Now(), time.Time{}
}

func (a *attempt) connected() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = time.Now()
}

func (a *attempt) isConnected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.got.IsZero()
}

// phases returns how long connecting and upgrading took, where they were reached.
func (a *attempt) phases(upgraded time.Time) (connect, upgrade time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got.IsZero() {
		return 0, 0
	}
	return a.got.Sub(a.wanted), upgraded.Sub(a.got)
}

// ended returns nil while the context lasts, and otherwise why it does not. A deadline on a socket can fire a moment before
// the context's own timer; err, which may be nil, is the error that was met and tells.
func (a *attempt) ended(err error) error {
	if ctxErr := a.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	deadline, ok := a.ctx.Deadline()
	if ok && (!time.Now().Before(deadline) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)) {
		return context.DeadlineExceeded
	}
	return nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ofAttempt makes dial work for the attempt that ctx carries.
func (dial dialFunc) ofAttempt(ctx context.Context, network, address string) (net.Conn, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("a connection was dialled outside an attempt")
	}
	conn, err := dial(a.ctx, network, address)
	if err != nil {
		return nil, err
	}
	if !a.hold(conn) {
		return nil, net.ErrClosed
	}
	return &boundedConn{Conn: conn, budget: &a.budget}, nil
}

// boundedConn reads within an attempt's budget.
type boundedConn struct {
	net.Conn
	budget *atomic.Int64
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.budget.Load() <= 0 {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(p)
	c.budget.Add(int64(-n))
	return n, err
}
