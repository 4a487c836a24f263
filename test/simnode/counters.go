// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what tests read from a fleet: counters, and a Pod's view from its node.

package simnode

import "sync/atomic"

// Counters are totals over a fleet since its start, but for the two that say now.
type Counters struct {
	QuitsReceived    int64 // requests for /quitquitquit at any proxy double
	QuitsAccepted    int64 // answered by 200
	QuitsForbidden   int64 // from an address that is not the Pod's own
	QuitsWrongMethod int64 // not by POST
	QuitsByExec      int64 // pilot-agent request POST quitquitquit
	QuitsPremature   int64 // while an app container of that Pod ran or would run again

	PortForwards       int64 // connections opened
	Dials              int64 // pairs of streams
	DialsRefused       int64 // that ended in an error on the error stream because nothing listened
	DialsToHostNetwork int64 // to a Pod in the host's network, where they reach the node itself; always refused here
	OpenPortForwards   int64 // connections now
	OpenDials          int64 // pairs of streams now

	StatusWrites int64 // Pod statuses written
}

type counters struct {
	received, accepted, forbidden, wrongMethod, byExec, premature                   atomic.Int64
	portForwards, dials, dialsRefused, hostNetwork, openForwards, openDials, writes atomic.Int64
}

// Counters returns the present values.
func (f *Fleet) Counters() Counters {
	c := &f.counters
	return Counters{
		QuitsReceived: c.received.Load(), QuitsAccepted: c.accepted.Load(), QuitsForbidden: c.forbidden.Load(),
		QuitsWrongMethod: c.wrongMethod.Load(), QuitsByExec: c.byExec.Load(), QuitsPremature: c.premature.Load(),
		PortForwards: c.portForwards.Load(), Dials: c.dials.Load(), DialsRefused: c.dialsRefused.Load(),
		DialsToHostNetwork: c.hostNetwork.Load(), OpenPortForwards: c.openForwards.Load(), OpenDials: c.openDials.Load(),
		StatusWrites: c.writes.Load(),
	}
}

// PodState is a Pod as its node sees it.
type PodState struct {
	IP             string
	StatusPort     int // of the proxy double; 0 is none
	Quits          int // that passed the checks of peer and method, or came by exec
	QuitsPremature int
}

// Pod returns the state of the newest Pod of that name on any of the fleet's nodes.
func (f *Fleet) Pod(namespace, name string) (PodState, bool) {
	p := f.find(namespace, name)
	if p == nil {
		return PodState{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return PodState{IP: p.ip, StatusPort: p.statusPort, Quits: p.quits, QuitsPremature: p.premature}, true
}
