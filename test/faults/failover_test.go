// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A leader that goes: it is killed, told to end, or cut off. Another replica waits. One lease is shared, so these tests run one by one.

package faults

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

const (
	// gracefulBound and crashBound are how long it may take from the leader's end to the next quit.
	gracefulBound = 5 * time.Second
	crashBound    = 20 * time.Second
)

// pair is two replicas, one of which leads.
type pair struct {
	*work
	leader, waiting *process
	idle            level // of the leader
}

// leaderFlags are those that the operator is shipped with, and where to find the lease.
var leaderFlags = []string{"--leader-elect", "--leader-election-namespace=" + operatorNamespace}

// startPair starts two replicas; connect, where given, is the first one's way to the API server, and the first one leads.
func startPair(t *testing.T, connect *poisoned) *pair {
	t.Helper()
	w := &work{stage: shared, namespace: shared.makeNamespace(t)}
	w.enforce(t)
	config := shared.account
	if connect != nil {
		config = connect.connect(t, shared)
	}
	flags := append(slices.Clone(leaderFlags), "--namespaces="+w.namespace)
	leader := shared.startOperator(t, config, flags...)
	leads := func() error {
		leader.running(t)
		if !leader.leads(t.Context()) {
			return fmt.Errorf("it does not lead")
		}
		return nil
	}
	eventually(t, soon, "the first replica to lead", leads)
	leader.waitReady(t)
	waiting := shared.startOperator(t, shared.account, flags...)
	waiting.waitReady(t)
	p := &pair{work: w, leader: leader, waiting: waiting}
	p.idle = w.warmUp(t, leader)
	if err := leads(); err != nil || waiting.leads(t.Context()) {
		t.Fatalf("The wrong replica leads: %v", err)
	}
	return p
}

// stream starts Jobs of which an app finishes every second, for longer than a failover takes.
func (p *pair) stream(t *testing.T) {
	t.Helper()
	seconds := 30
	if testing.Short() {
		seconds = 8
	}
	for n := range seconds {
		p.create(t, job{name: fmt.Sprintf("stream-%d", n), pods: 1, run: time.Duration(n+1) * time.Second})
	}
}

// nextQuit waits for the first quit of the replica that waited.
func (p *pair) nextQuit(t *testing.T, bound time.Duration) time.Duration {
	t.Helper()
	return eventually(t, bound, "the other replica to ask a proxy to quit", func() error {
		p.waiting.running(t)
		n, err := p.waiting.metric(t.Context(), "jobmesh_quit_attempts_total", `outcome="accepted"`)
		if err == nil && n == 0 {
			err = fmt.Errorf("it has not yet")
		}
		return err
	})
}

// finish checks what must hold when all is over.
func (p *pair) finish(t *testing.T, f failover, next time.Duration) {
	t.Helper()
	p.awaitReaped(t, reapBound)
	p.awaitComplete(t)
	last := level{}
	eventually(t, calmBound, "the new leader to hold no more than the old one did", func() (err error) {
		if last, err = p.waiting.levelOf(t.Context()); err != nil {
			return err
		}
		return last.near(p.idle)
	})
	all, premature, most := p.quits(t)
	if premature > 0 {
		t.Errorf("%d quits reached a proxy while its app could still run", premature)
	}
	t.Logf("%s: next quit after %.1f s; %d quits for %d pods, at most %d for one; %+v → %+v", f.Fault, next.Seconds(), all, p.pods, most, p.idle, last)
	f.Next, f.Test = next, t.Name()
	if !t.Failed() {
		results.addFailover(f)
	}
}

func TestTheLeaderIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a lease lasts")
	}
	p := startPair(t, nil)
	p.stream(t)
	time.Sleep(3 * time.Second)
	p.leader.end(t, syscall.SIGKILL)
	next := p.nextQuit(t, crashBound)
	p.finish(t, failover{Fault: "leader killed", Effect: "SIGKILL: its lease has to run out", Bound: crashBound}, next)
}

func TestTheLeaderIsTold(t *testing.T) {
	if testing.Short() {
		t.Parallel() // the only one then that needs the lease
	}
	p := startPair(t, nil)
	p.stream(t)
	time.Sleep(3 * time.Second)
	signalled := time.Now()
	p.leader.end(t, syscall.SIGTERM)
	next := time.Since(signalled) + p.nextQuit(t, gracefulBound)
	if next > gracefulBound {
		t.Errorf("The next quit came after %v, want %v at most", next, gracefulBound)
	}
	if code := p.leader.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("The leader ended with exit code %d", code)
	}
	p.finish(t, failover{Fault: "leader told to end", Effect: "SIGTERM: it ends what it began and gives the lease back", Bound: gracefulBound}, next)
}

// TestTheLeaderIsCutOff has the leader lose the API server, and nobody else. It cannot renew its lease, so it must end before another
// replica takes over: two leaders would ask the same proxies.
func TestTheLeaderIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a lease lasts")
	}
	network := &poisoned{toxics: []toxic{{"timeout", map[string]int{"timeout": 0}}}}
	p := startPair(t, network)
	p.stream(t)
	time.Sleep(3 * time.Second)
	network.on(t)
	cut := time.Now()
	ended := make(chan time.Duration, 1)
	go func() {
		<-p.leader.exited
		ended <- time.Since(cut)
	}()
	next := p.nextQuit(t, crashBound)
	select {
	case after := <-ended:
		t.Logf("The old leader ended after %.1f s", after.Seconds())
	case <-time.After(time.Until(cut.Add(crashBound))):
		t.Fatalf("The leader still runs %v after it lost the API server", crashBound)
	}
	p.finish(t, failover{Fault: "leader cut off", Effect: "a black hole for the leader alone: it ends by itself, and the other takes over", Bound: crashBound}, next)
}
