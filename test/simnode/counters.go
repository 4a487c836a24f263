// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what tests read from a fleet: counters, and a Pod's view from its node.

package simnode

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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

	Phase       corev1.PodPhase // as last reported
	Reported    bool            // the API server has been told everything
	ProxyExited bool            // the last run of the proxy double, with any exit code

	// Times are the node's own, to the nanosecond, where a status has whole seconds. Zero is not yet.
	AppsFinishedAt time.Time // the last app container finished for good
	AppsReportedAt time.Time // the API server took the status that says so
	FirstQuitAt    time.Time // the first of Quits arrived
	ProxyExitedAt  time.Time
	FinishedAt     time.Time // the API server took the status with the final phase
}

// times are moments in a pod's life that its containers do not remember.
type times struct{ appsReported, firstQuit, finished time.Time }

// noteReport remembers what the API server took.
func (p *pod) noteReport(changes int, phase corev1.PodPhase, appsFinished bool) {
	p.mu.Lock()
	p.reported, p.reportedPhase = max(p.reported, changes), phase
	first := appsFinished && p.times.appsReported.IsZero()
	if first {
		p.times.appsReported = time.Now()
	}
	if (phase == corev1.PodSucceeded || phase == corev1.PodFailed) && p.times.finished.IsZero() {
		p.times.finished = time.Now()
	}
	p.mu.Unlock()
	if ended := p.fleet.options.Ended; first && ended != nil {
		namespace, name, _ := strings.Cut(p.key, "/")
		ended(namespace, name, p.node.name)
	}
}

// Pod returns the state of the newest Pod of that name on any of the fleet's nodes.
func (f *Fleet) Pod(namespace, name string) (PodState, bool) {
	p := f.find(namespace, name)
	if p == nil {
		return PodState{}, false
	}
	return p.view(), true
}

// Each calls look with every Pod that the fleet's nodes have and the API server has not removed, in no order.
func (f *Fleet) Each(look func(namespace, name string, state PodState)) {
	f.mu.Lock()
	pods := slices.Collect(maps.Values(f.pods))
	f.mu.Unlock()
	for _, p := range pods {
		namespace, name, _ := strings.Cut(p.key, "/")
		look(namespace, name, p.view())
	}
}

// view is the pod as its node sees it.
func (p *pod) view() PodState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PodState{
		IP: p.ip, StatusPort: p.statusPort, Quits: p.quits, QuitsPremature: p.premature,
		Phase: p.reportedPhase, Reported: p.reported == p.changes,
		AppsReportedAt: p.times.appsReported, FirstQuitAt: p.times.firstQuit, FinishedAt: p.times.finished,
	}
	if last, done := p.appsFinished(); done {
		s.AppsFinishedAt = last
	}
	for _, c := range p.all() {
		if c.proxy && c.state == terminated {
			s.ProxyExited, s.ProxyExitedAt = true, c.finishedAt
		}
	}
	return s
}
