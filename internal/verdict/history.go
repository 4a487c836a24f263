// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What is remembered of earlier attempts, and when the next is due.

package verdict

import "time"

const (
	// refusedBase is the first delay where the port was refused: the agent is not up yet, which is the common case where a
	// short app finishes before its proxy has started.
	refusedBase = 250 * time.Millisecond
	// refusedSoon caps the delay of the first soonRetries refused attempts, so that a slow start of the agent costs a
	// burst of Jobs no more than this.
	refusedSoon = time.Second
	soonRetries = 20
	failedBase  = time.Second
	maxBackoff  = time.Minute

	// askAgain is the least time, drain aside, that an asked proxy has to show up as terminated in the pod's status.
	askAgain = 5 * time.Second
	// unansweredBase is the first delay where no answer came. Most agents that end without an answer have quit, and show it
	// in the status within a second or two. But an agent that is asked before it has created Envoy drops the connection and stays
	// (pilot-agent from 1.26), which in a burst of short Jobs is common; and asking one that is on its way out does no harm.
	unansweredBase = time.Second
)

// History is what the operator remembers of one run of one proxy. The zero value remembers nothing, as after a restart.
type History struct {
	// SeenFinished is when the last app container finished, by the operator's own clock: set when that is first seen, and with the clock's
	// monotonic reading, which no change of the time of day moves.
	SeenFinished time.Time
	// Failures counts the failed attempts in a row, the refused ones among them.
	Failures int
	// Refusals counts those that nothing listened to.
	Refusals int
	// RetryAt is when the next attempt is due after a failed one.
	RetryAt time.Time
	// Asks counts the attempts that the proxy accepted, or may have, and did not end by; earlier runs of it included.
	Asks int
	// Unanswered counts those attempts in a row that no answer came to.
	Unanswered int
	// AskedAt is when this run of the proxy was first asked.
	AskedAt time.Time
	// Delivered is true where an attempt may have reached the proxy: it accepted, or no answer came.
	Delivered bool
	// AskAgainAt is when a proxy that was asked, and still runs, is asked again.
	AskAgainAt time.Time
}

// Failed adds an attempt that failed at now. refused tells that nothing listened on the port. Each kind of failure has its own
// delays, so that one odd error after a slow start of the agent does not cost a minute. spread in [0,1) sets the jitter: the
// delay is 80 % to 120 % of the computed one.
func (h History) Failed(refused bool, now time.Time, spread float64) History {
	h.Failures++
	if refused {
		h.Refusals++
	}
	var delay time.Duration
	switch {
	case refused && h.Refusals <= soonRetries:
		delay = min(doubled(refusedBase, h.Refusals-1), refusedSoon)
	case refused:
		delay = doubled(refusedSoon, h.Refusals-soonRetries)
	default:
		delay = doubled(failedBase, h.Failures-h.Refusals-1)
	}
	h.RetryAt = now.Add(time.Duration(float64(delay) * (0.8 + 0.4*spread)))
	return h
}

// Asked adds an attempt at now that the proxy accepted. drain is how long the proxy may take to exit.
func (h History) Asked(now time.Time, drain time.Duration) History {
	h = h.delivered(now)
	h.Unanswered = 0
	first := askAgain + drain
	h.AskAgainAt = now.Add(max(first, doubled(first, h.Asks-1)))
	return h
}

// AskedInVain adds an attempt at now that the proxy may have accepted: the request was sent, and no answer came.
func (h History) AskedInVain(now time.Time) History {
	h = h.delivered(now)
	h.Unanswered++
	h.AskAgainAt = now.Add(doubled(unansweredBase, h.Unanswered-1))
	return h
}

func (h History) delivered(now time.Time) History {
	h.Failures, h.Refusals, h.RetryAt = 0, 0, time.Time{}
	h.Asks++
	h.Delivered = true
	if h.AskedAt.IsZero() {
		h.AskedAt = now
	}
	return h
}

// doubled is base doubled n times, a minute at most.
func doubled(base time.Duration, n int) time.Duration {
	for ; n > 0 && base < maxBackoff; n-- {
		base *= 2
	}
	return min(base, maxBackoff)
}

// Restarted carries the history over to a proxy that the kubelet started again. Where it had been asked to quit, that counts as
// a failure, which costs more each time, so that quit and restart do not chase each other through a Job's backoffLimit. A proxy
// that no attempt reached ended by itself, and the next run begins with a clean slate.
func (h History) Restarted(now time.Time, spread float64) History {
	asks := h.Asks
	if h.Delivered {
		asks = max(asks, 1)
	}
	next := History{SeenFinished: h.SeenFinished, Asks: asks}
	if asks == 0 {
		return next
	}
	next.Failures = asks - 1
	return next.Failed(false, now, spread)
}
