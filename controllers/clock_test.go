// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Clocks that jump: the time of day of the operator's machine is set an hour forward or back while a pod waits. What is waited for in
// real seconds is waited for, no less and no more.

package controllers

import (
	"context"
	"testing"
	"time"
	"unsafe"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/jobmesh/jobmesh/internal/quit"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// set returns t as a clock shows it whose time of day was set by d. Its monotonic reading stays, by which Go compares the times of
// one process. No function of the standard library makes such a time, so this goes by the layout of [time.Time]: a flag, 33 bits of
// seconds, 30 bits of nanoseconds, and the monotonic reading beside them. TestSet notices where that changes.
func set(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(int64(d/time.Second) << 30)
	return t
}

func TestSet(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		moved := set(now, d)
		if got := moved.Sub(now); got != 0 {
			t.Errorf("%v: the monotonic clock moved by %v", d, got)
		}
		if got := moved.Round(0).Sub(now.Round(0)); got != d {
			t.Errorf("%v: the time of day moved by %v", d, got)
		}
	}
}

// jumps are what happens to the time of day.
var jumps = map[string]time.Duration{"forward": time.Hour, "back": -time.Hour, "none": 0}

// jumpBench is a bench with a clock that has both readings, and a pod whose app has ended a second ago.
func jumpBench(t *testing.T, policy *build.Policy) *bench {
	t.Helper()
	now := time.Now()
	now = now.Add(-time.Duration(now.Nanosecond())) // the API keeps whole seconds
	ended := build.ExitedAt(0, now.Round(0).Add(-time.Second))
	pod := build.MakePod("pod").App("app", ended).Proxy(build.Running())
	b := newBench(t, pod.Obj(), policy.Obj())
	b.setClock(now)
	return b
}

func (b *bench) setClock(now time.Time) {
	b.clock = clocktesting.NewFakeClock(now)
	b.Clock = b.clock
}

// jump sets the time of day.
func (b *bench) jump(d time.Duration) { b.clock.SetTime(set(b.clock.Now(), d)) }

// due looks at the pod, wants no further attempt, and wants the next look in the given time; then it lets that time pass, and wants
// an attempt.
func (b *bench) due(in time.Duration) {
	b.t.Helper()
	asks := b.quitter.count()
	after := b.reconcile("pod").RequeueAfter
	b.wantAsks(asks)
	if after != in {
		b.t.Errorf("Looks again in %v, want %v", after, in)
	}
	b.clock.Step(in)
	b.reconcile("pod")
	b.wantAsks(asks + 1)
}

func TestTheClockJumpsAfterTheProxyWasAsked(t *testing.T) {
	for name, d := range jumps {
		t.Run(name, func(t *testing.T) {
			b := jumpBench(t, build.MakePolicy("reap"))
			after := b.reconcile("pod").RequeueAfter
			b.wantAsks(1)
			b.clock.Step(3 * time.Second)
			b.jump(d)
			b.due(after - 3*time.Second)
		})
	}
}

func TestTheClockJumpsWhileItBacksOff(t *testing.T) {
	for _, outcome := range []quit.Outcome{quit.OutcomeRefused, quit.OutcomeError, quit.OutcomeTimeout, quit.OutcomeUnknown} {
		for name, d := range jumps {
			t.Run(string(outcome)+" "+name, func(t *testing.T) {
				b := jumpBench(t, build.MakePolicy("reap"))
				b.quitter.outcomes = []quit.Outcome{outcome}
				after := b.reconcile("pod").RequeueAfter
				b.wantAsks(1)
				b.clock.Step(100 * time.Millisecond)
				b.jump(d)
				b.due(after - 100*time.Millisecond)
			})
		}
	}
}

// TestTheClockJumpsDuringAnAttempt: how long it took, and when the next is due, do not depend on it.
func TestTheClockJumpsDuringAnAttempt(t *testing.T) {
	for name, d := range jumps {
		t.Run(name, func(t *testing.T) {
			b := jumpBench(t, build.MakePolicy("reap"))
			b.quitter.outcomes = []quit.Outcome{quit.OutcomeError}
			b.quitter.before = func(context.Context) { b.jump(d) }
			after := b.reconcile("pod").RequeueAfter
			b.wantAsks(1)
			if after < 800*time.Millisecond || after > 1200*time.Millisecond {
				t.Errorf("Backs off for %v, want about 1s", after)
			}
			b.quitter.before = nil
			b.due(after)
		})
	}
}

// TestTheClockJumpsWhileTheAppRuns: no jump makes an app finish.
func TestTheClockJumpsWhileTheAppRuns(t *testing.T) {
	for name, d := range jumps {
		t.Run(name, func(t *testing.T) {
			b := enforcing(t, build.MakePod("pod").App("app", build.Running()).Proxy(build.Running()).Deadline(600).Obj())
			b.setClock(time.Now())
			b.reconcile("pod")
			b.jump(d)
			b.reconcile("pod")
			b.wantAsks(0)
		})
	}
}
