// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds one Pod's life. A Pod is no goroutine: sync moves it to where it must be now, and a timer or an event
// calls it again.

package simnode

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// pod is a Pod on a node. Its fields below mu are guarded by it.
type pod struct {
	fleet       *Fleet
	node        *Node
	key         string // namespace/name
	uid         string // of the Pod, and here of its sandbox too
	hostNetwork bool
	ip          string
	statusPort  int // of the proxy double; 0 is none

	mu        sync.Mutex
	object    *corev1.Pod // the API server's latest word; shared with the informer, so read only
	scriptErr error
	startTime time.Time
	init      []*container // in order, sidecars among them
	apps      []*container // the classic proxy among them
	initDone  bool
	deleting  bool
	stop      *stop // why the Pod is being ended before its time, or nil
	finished  bool  // nothing runs and nothing will: the phase is final
	dead      bool  // gone from the API server, or the fleet has stopped
	timer     *time.Timer
	quits     int
	premature int
	times     times

	changes       int // so far
	reported      int // of them, in the status last written
	reportedPhase corev1.PodPhase
}

// stop says why and how a Pod is ended.
type stop struct {
	grace           time.Duration
	reason, message string
}

func newPod(f *Fleet, n *Node, object *corev1.Pod) *pod {
	p := &pod{
		fleet: f, node: n, key: object.Namespace + "/" + object.Name, uid: string(object.UID),
		hostNetwork: object.Spec.HostNetwork, object: object,
	}
	var script Script
	var proxy ProxyScript
	script, proxy, p.scriptErr = readScripts(object)
	if p.scriptErr != nil {
		f.log.Error(p.scriptErr, "A Pod's script cannot be read: it fails", "pod", p.key)
	}
	for i := range object.Spec.InitContainers {
		p.init = append(p.init, newContainer(&object.Spec.InitContainers[i], true, script, proxy))
	}
	for i := range object.Spec.Containers {
		c := newContainer(&object.Spec.Containers[i], false, script, proxy)
		if c.proxy {
			p.statusPort = statusPort(object, c.spec)
		}
		p.apps = append(p.apps, c)
	}
	if p.hostNetwork {
		p.ip, p.statusPort = nodeIP, 0
	} else {
		p.ip = f.network.take()
	}
	return p
}

func (p *pod) all() []*container {
	all := make([]*container, 0, len(p.init)+len(p.apps))
	return append(append(all, p.init...), p.apps...)
}

// observe takes in the API server's latest word.
func (p *pod) observe(object *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.object = object
	if object.DeletionTimestamp != nil && !p.deleting {
		p.deleting = true
		if p.stop == nil {
			p.stop = &stop{grace: time.Duration(ptr.Deref(object.DeletionGracePeriodSeconds, 0)) * time.Second}
		}
		p.dirty() // a finished Pod has nothing left to do but to be removed
	}
	p.sync()
}

// kill ends everything at once and without a word to the API server.
func (p *pod) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, c := range p.all() {
		c.closeDouble()
	}
	p.releaseIP()
}

func (p *pod) releaseIP() {
	if !p.finished && !p.hostNetwork {
		p.fleet.network.give(p.ip)
	}
	p.finished = true
}

// wake is sync for timers.
func (p *pod) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sync()
}

// sync moves the Pod to where it must be now, has its status written where something changed, and sets the timer for
// the next change. The caller holds mu.
func (p *pod) sync() {
	if p.finished || p.dead || p.node.offline.Load() {
		return
	}
	now := time.Now()
	if p.startTime.IsZero() {
		p.startTime = now
		p.dirty()
	}
	var next moment
	for changed := true; changed && !p.finished; {
		next = moment{}
		changed = p.step(now, &next)
		if changed {
			p.dirty()
		}
	}
	if p.finished || next.IsZero() {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(next.Time), p.wake)
	} else {
		p.timer.Reset(time.Until(next.Time))
	}
}

// step makes what is due at now happen, and reports whether anything did. Otherwise next is when the next thing is due.
func (p *pod) step(now time.Time, next *moment) bool {
	changed := false
	for _, c := range p.all() {
		changed = c.advance(p, now, next) || changed
	}
	if p.stop == nil {
		p.checkDeadline(now, next)
	}
	if p.stop == nil && p.scriptErr != nil {
		p.stop = &stop{reason: "BadScript", message: p.scriptErr.Error()}
	}
	switch {
	case p.stop != nil:
		changed = p.stopAll(now) || changed
	case !p.initDone:
		changed = p.runInit(now) || changed
	default:
		changed = p.runApps(now) || changed
	}
	return changed
}

func (p *pod) checkDeadline(now time.Time, next *moment) {
	seconds := p.object.Spec.ActiveDeadlineSeconds
	if seconds == nil {
		return
	}
	deadline := p.startTime.Add(time.Duration(*seconds) * time.Second)
	if now.Before(deadline) {
		next.sooner(deadline)
		return
	}
	p.stop = &stop{
		grace: p.terminationGrace(), reason: "DeadlineExceeded",
		message: "Pod was active on the node longer than the specified deadline",
	}
}

func (p *pod) terminationGrace() time.Duration {
	return time.Duration(ptr.Deref(p.object.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
}

// runInit starts the init containers one after another; a sidecar lets the next one start as soon as it runs.
func (p *pod) runInit(now time.Time) bool {
	for _, c := range p.init {
		switch {
		case c.state == waiting && c.startAt.IsZero():
			return c.schedule(now)
		case c.sidecar && c.state == running, c.state == terminated && !c.sidecar && c.exitCode == 0:
			continue
		case c.state == terminated && c.willRestart(p.object):
			return c.scheduleRestart(p.fleet.options)
		case c.state == terminated:
			p.stop = &stop{grace: p.terminationGrace()}
			return true
		default:
			return false
		}
	}
	p.initDone = true
	return true
}

// runApps starts all containers together and restarts those that must run again; once all have finished for good, the
// sidecars go, the last one first.
func (p *pod) runApps(now time.Time) bool {
	changed, done := false, true
	for _, c := range p.apps {
		switch {
		case c.state == waiting && c.startAt.IsZero():
			changed = c.schedule(now) || changed
		case c.state == terminated && c.willRestart(p.object):
			changed = c.scheduleRestart(p.fleet.options) || changed
		}
		done = done && c.final(p.object)
	}
	if done {
		return p.stopSidecars(now, p.terminationGrace()) || changed
	}
	for _, c := range p.init {
		if c.sidecar && c.state == terminated {
			changed = c.scheduleRestart(p.fleet.options) || changed
		}
	}
	return changed
}

// stopAll ends a Pod before its time: the containers together, then the sidecars.
func (p *pod) stopAll(now time.Time) bool {
	changed, busy := false, false
	for _, c := range p.all() {
		if !c.sidecar && c.state == running {
			changed = c.terminate(now, p.stop.grace) || changed
			busy = true
		}
	}
	if busy {
		return changed
	}
	return p.stopSidecars(now, p.stop.grace) || changed
}

// stopSidecars ends the sidecars one after another, then the Pod.
func (p *pod) stopSidecars(now time.Time, grace time.Duration) bool {
	for _, c := range slices.Backward(p.init) {
		if c.sidecar && c.state == running {
			return c.terminate(now, grace)
		}
	}
	p.releaseIP()
	if p.timer != nil {
		p.timer.Stop()
	}
	return true
}

// exitAfter ends one run of a container after a delay; a run that has ended meanwhile is left alone.
func (p *pod) exitAfter(c *container, attempt int, code int32, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now().Add(delay)
	if c.attempts != attempt || c.state != running || (!c.exitAt.IsZero() && c.exitAt.Before(at)) {
		return
	}
	c.exitAt, c.exitWith = at, code
	p.sync()
}

// noteQuit counts a quit that reached the proxy.
func (p *pod) noteQuit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quits++
	if p.times.firstQuit.IsZero() {
		p.times.firstQuit = time.Now()
	}
	if _, done := p.appsFinished(); !done {
		p.premature++
		p.fleet.counters.premature.Add(1)
	}
}

// appsFinished reports whether every app container has finished for good, and when the last one did. The caller holds mu.
func (p *pod) appsFinished() (last time.Time, done bool) {
	for _, c := range p.apps {
		if c.proxy || c.script.Auxiliary {
			continue
		}
		if !c.final(p.object) {
			return time.Time{}, false
		}
		if c.finishedAt.After(last) {
			last = c.finishedAt
		}
	}
	return last, true
}

// dirty has the status written after the relist delay. The caller holds mu.
func (p *pod) dirty() {
	p.changes++
	if !p.dead {
		p.fleet.queue.AddAfter(p, p.fleet.options.RelistDelay)
	}
}

// moment is the earliest of several times.
type moment struct{ time.Time }

func (m *moment) sooner(t time.Time) {
	if m.IsZero() || t.Before(m.Time) {
		m.Time = t
	}
}
