// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// When the next attempt is due.

package verdict

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const plain = 0.5 // the spread that leaves a delay as it is computed

// delays are what n failures in a row cost, each at the time when the one before was due again.
func delays(h History, n int, refused bool) []time.Duration {
	var got []time.Duration
	at := now
	for range n {
		h = h.Failed(refused, at, plain)
		got = append(got, h.RetryAt.Sub(at))
		at = h.RetryAt
	}
	return got
}

func TestFailed(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	after := func(kinds ...bool) History {
		var h History
		for _, refused := range kinds {
			h = h.Failed(refused, now, plain)
		}
		return h
	}
	refusals := slices.Repeat([]bool{true}, 19)

	for name, tc := range map[string]struct {
		history History
		refused bool
		want    []time.Duration
	}{
		"refused: soon at first, for twenty times, then to a minute": {History{}, true, slices.Concat(
			[]time.Duration{250 * ms, 500 * ms}, slices.Repeat([]time.Duration{s}, 18), []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s},
		)},
		"others: from a second to a minute": {History{}, false, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		"a first timeout after refusals":    {after(refusals...), false, []time.Duration{s, 2 * s}},
		"refusals go on after a timeout":    {after(true, false), true, []time.Duration{500 * ms, s}},
		"a first refusal after timeouts":    {after(false, false, false, false, false, false, false), true, []time.Duration{250 * ms}},
		"after the proxy was asked":         {after(refusals...).Asked(now, 0), true, []time.Duration{250 * ms, 500 * ms}},
		"a timeout after it was asked":      {after(false, false, false).Asked(now, 0), false, []time.Duration{s, 2 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, delays(tc.history, len(tc.want), tc.refused)); diff != "" {
				t.Errorf("delays (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedJitter(t *testing.T) {
	for _, tc := range []struct {
		spread float64
		want   time.Duration
	}{{0, 800 * time.Millisecond}, {0.25, 900 * time.Millisecond}, {0.5, time.Second}, {1, 1200 * time.Millisecond}} {
		got := History{}.Failed(false, now, tc.spread).RetryAt.Sub(now)
		if (got - tc.want).Abs() > time.Microsecond {
			t.Errorf("with a spread of %g the delay is %s, want %s", tc.spread, got, tc.want)
		}
	}
}

func TestFailedNeverOverflows(t *testing.T) {
	for _, refused := range []bool{true, false} {
		all := delays(History{}, 10_000, refused)
		if last := all[len(all)-1]; last != time.Minute {
			t.Errorf("after 10000 failures (refused %t) the delay is %s", refused, last)
		}
		if !slices.IsSorted(all) {
			t.Errorf("the delays (refused %t) do not only grow", refused)
		}
	}
	const most = int(^uint(0) >> 1)
	if got := (History{Failures: most - 1, Refusals: 0}).Failed(false, now, plain).RetryAt.Sub(now); got != time.Minute {
		t.Errorf("at the end of the count the delay is %s", got)
	}
}

// TestAskedInVain: an agent that drops the connection because Envoy is not up yet is asked again soon; and one that was
// asked in vain for long, seldom.
func TestAskedInVain(t *testing.T) {
	const s = time.Second
	want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}
	var h History
	var got []time.Duration
	at := now
	for range want {
		h = h.AskedInVain(at)
		got = append(got, h.AskAgainAt.Sub(at))
		at = h.AskAgainAt
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked again after (-want +got):\n%s", diff)
	}
	if !h.Delivered || h.Asks != len(want) || !h.AskedAt.Equal(now) {
		t.Errorf("%+v, want %d delivered asks since %s", h, len(want), now)
	}
	if h = h.Asked(at, 0).AskedInVain(at); h.AskAgainAt.Sub(at) != s {
		t.Errorf("after an answer the delay is %s, want it to begin anew", h.AskAgainAt.Sub(at))
	}
}

func TestAsked(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		drain time.Duration
		want  []time.Duration
	}{
		"no drain":                     {0, []time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 60 * s, 60 * s}},
		"the usual drain":              {5 * s, []time.Duration{10 * s, 20 * s, 40 * s, 60 * s, 60 * s}},
		"a drain longer than a minute": {10 * time.Minute, []time.Duration{605 * s, 605 * s, 605 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			var got []time.Duration
			at := now
			for range tc.want {
				h = h.Asked(at, tc.drain)
				got = append(got, h.AskAgainAt.Sub(at))
				at = h.AskAgainAt
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("asked again after (-want +got):\n%s", diff)
			}
			if !h.Delivered {
				t.Error("an ask that the proxy may have heard does not count as delivered")
			}
			if h.Asks != len(tc.want) || !h.AskedAt.Equal(now) {
				t.Errorf("%d asks since %s, want %d since %s", h.Asks, h.AskedAt, len(tc.want), now)
			}
		})
	}
}

func TestAskedEndsTheFailures(t *testing.T) {
	h := History{SeenFinished: now}.Failed(true, now, plain).Failed(false, now, plain).Asked(now, 0)
	if h.Failures != 0 || h.Refusals != 0 || !h.RetryAt.IsZero() {
		t.Errorf("failures remain: %+v", h)
	}
	if !h.SeenFinished.Equal(now) {
		t.Errorf("it is forgotten when the app was seen finished: %+v", h)
	}
}

// A failed attempt does not undo that the proxy was asked: the answer may be on its way.
func TestFailedKeepsTheAsks(t *testing.T) {
	asked := History{}.Asked(now, 5*time.Second)
	failed := asked.Failed(true, now.Add(time.Second), plain)
	if failed.Asks != 1 || !failed.AskedAt.Equal(asked.AskedAt) || !failed.AskAgainAt.Equal(asked.AskAgainAt) {
		t.Errorf("got %+v after %+v", failed, asked)
	}
}

// A proxy that quits and is started again, over and over, is asked ever more rarely: each restart costs its Job one of its backoffLimit.
func TestRestarted(t *testing.T) {
	const s = time.Second
	var got []time.Duration
	h, at := History{SeenFinished: now}, now
	for range 8 {
		h = h.Asked(at, 0)
		at = at.Add(s)
		h = h.Restarted(at, plain)
		if h.Delivered || !h.AskedAt.IsZero() || !h.AskAgainAt.IsZero() || !h.SeenFinished.Equal(now) {
			t.Fatalf("the next run begins with %+v", h)
		}
		got = append(got, h.RetryAt.Sub(at))
		at = h.RetryAt
	}
	if diff := cmp.Diff([]time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}, got); diff != "" {
		t.Errorf("asked after the restart (-want +got):\n%s", diff)
	}
}

func TestRestartedByItself(t *testing.T) {
	h := History{SeenFinished: now}.Failed(true, now, plain).Failed(true, now, plain).Failed(false, now, plain)
	if diff := cmp.Diff(History{SeenFinished: now}, h.Restarted(now, plain)); diff != "" {
		t.Errorf("history of a proxy that was never reached (-want +got):\n%s", diff)
	}
	h.Delivered = true // as after a timeout
	if got := h.Restarted(now, plain).RetryAt.Sub(now); got != time.Second {
		t.Errorf("a proxy that may have been reached is asked after %s, want 1s", got)
	}
}
