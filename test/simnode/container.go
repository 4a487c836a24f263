// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds one container's life, and the kubelet's rule of what is started again.

package simnode

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

type state int

const (
	waiting state = iota
	running
	terminated
)

// container is a container of a pod and is guarded by the pod's lock.
type container struct {
	spec    *corev1.Container
	init    bool
	sidecar bool
	proxy   bool // runs the proxy double
	script  ContainerScript
	double  *double
	proxied ProxyScript

	state     state
	attempts  int       // started so far
	startAt   time.Time // while waiting or terminated: when it starts; zero is not decided
	exitAt    time.Time // while running: when it exits; zero is not decided
	exitWith  int32
	signalled bool

	id         string
	startedAt  time.Time
	finishedAt time.Time
	exitCode   int32
	last       *corev1.ContainerStateTerminated
	backOffAt  time.Time // when a terminated container shows as waiting for its restart
	backingOff bool
}

func newContainer(spec *corev1.Container, init bool, script Script, proxy ProxyScript) *container {
	c := &container{spec: spec, init: init, proxied: proxy}
	c.sidecar = init && ptr.Deref(spec.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	var scripted bool
	c.script, scripted = script.Containers[spec.Name]
	c.proxy = spec.Name == proxyName && !scripted && (!init || c.sidecar)
	return c
}

// schedule decides when the container starts for the first time, and reports whether it ever does.
func (c *container) schedule(now time.Time) bool {
	if c.script.Waiting != "" {
		return false
	}
	c.startAt = now.Add(c.script.StartDelay.Duration)
	return true
}

// scheduleRestart decides when a terminated container starts again, and reports whether that was still open.
func (c *container) scheduleRestart(options Options) bool {
	if !c.startAt.IsZero() {
		return false
	}
	backOff := min(options.RestartBackOff<<min(c.attempts-1, 20), maxRestartBackOff)
	c.startAt = c.finishedAt.Add(backOff)
	c.backOffAt = c.finishedAt.Add(2 * options.RelistDelay)
	return true
}

// advance starts or ends the container where that is due.
func (c *container) advance(p *pod, now time.Time, next *moment) bool {
	switch {
	case c.state == running && !c.exitAt.IsZero():
		if now.Before(c.exitAt) {
			next.sooner(c.exitAt)
			return false
		}
		c.finish(now)
		return true
	case c.state != running && !c.startAt.IsZero() && p.stop == nil:
		if !now.Before(c.startAt) {
			c.start(p, now)
			return true
		}
		next.sooner(c.startAt)
		if c.state == terminated && !c.backingOff {
			if now.Before(c.backOffAt) {
				next.sooner(c.backOffAt)
				return false
			}
			c.backingOff = true
			return true
		}
	}
	return false
}

func (c *container) start(p *pod, now time.Time) {
	if c.state == terminated {
		c.last = c.terminatedState()
	}
	c.state, c.startedAt, c.startAt, c.signalled, c.backingOff = running, now, time.Time{}, false, false
	c.id = newID()
	c.attempts++
	c.exitAt, c.exitWith = time.Time{}, 0
	if c.proxy {
		c.double = startDouble(p, c, c.proxied, now)
		return
	}
	if codes := c.script.ExitCodes; len(codes) > 0 {
		c.exitWith = codes[min(c.attempts, len(codes))-1]
	}
	if gate := c.script.Gate; gate != "" && !p.fleet.gates.open(gate) {
		return
	}
	run := c.script.Run.Duration
	if run == 0 && !c.sidecar {
		run = DefaultRun
	}
	if run > 0 {
		c.exitAt = now.Add(run)
	}
}

func (c *container) finish(now time.Time) {
	c.state, c.finishedAt, c.exitCode = terminated, now, c.exitWith
	c.startAt, c.exitAt = time.Time{}, time.Time{}
	c.closeDouble()
}

func (c *container) closeDouble() {
	if c.double != nil {
		c.double.close()
		c.double = nil
	}
}

// terminate is SIGTERM, with SIGKILL after the grace period. It reports whether the container ends at once.
func (c *container) terminate(now time.Time, grace time.Duration) bool {
	if c.signalled {
		return false
	}
	c.signalled = true
	delay, code := c.script.StopDelay.Duration, ptr.Deref(c.script.StopExitCode, 143)
	if c.proxy {
		delay, code = drainOf(c.proxied), 0
	}
	if delay > grace {
		delay, code = grace, 137
	}
	at := now.Add(delay)
	if c.exitAt.IsZero() || at.Before(c.exitAt) {
		c.exitAt, c.exitWith = at, code
	}
	return true
}

// final reports whether the container has ended and will not be started again.
func (c *container) final(pod *corev1.Pod) bool { return c.state == terminated && !c.willRestart(pod) }

// willRestart is the kubelet's rule for a container that has terminated: its own restart rules, then its own policy,
// then the Pod's. An init container under the Pod's policy Always is restarted only when it failed.
func (c *container) willRestart(pod *corev1.Pod) bool {
	for _, rule := range c.spec.RestartPolicyRules {
		if codes := rule.ExitCodes; codes != nil {
			if slices.Contains(codes.Values, c.exitCode) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true // both actions start it again
			}
		}
	}
	policy := string(pod.Spec.RestartPolicy)
	if c.spec.RestartPolicy != nil {
		policy = string(*c.spec.RestartPolicy)
	}
	switch {
	case policy == string(corev1.RestartPolicyNever):
		return false
	case policy == string(corev1.RestartPolicyAlways) && (!c.init || c.sidecar):
		return true
	default:
		return c.exitCode != 0
	}
}

// newID returns a container ID as containerd gives them.
func newID() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id)
	return "containerd://" + hex.EncodeToString(id)
}
