// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the gates: containers that run until a test lets them all go.

package simnode

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// gates remembers which are open.
type gates struct {
	mu     sync.Mutex
	opened map[string]struct{}
}

func (g *gates) open(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.opened[name]
	return ok
}

// OpenGate lets the containers go that wait at a gate (ContainerScript.Gate): each exits at a moment of its own, spread evenly over the
// given time from now on. It returns how many waited. A gate stays open.
func (f *Fleet) OpenGate(name string, within time.Duration) int {
	f.gates.mu.Lock()
	if f.gates.opened == nil {
		f.gates.opened = map[string]struct{}{}
	}
	f.gates.opened[name] = struct{}{}
	f.gates.mu.Unlock()

	f.mu.Lock()
	pods := slices.Collect(maps.Values(f.pods))
	f.mu.Unlock()
	began, released := time.Now(), 0
	for i, place := range rand.Perm(len(pods)) {
		released += pods[i].leave(name, began.Add(within*time.Duration(place)/time.Duration(len(pods))))
	}
	return released
}

// leave has the containers that wait at a gate exit at a given moment, and returns how many there are.
func (p *pod) leave(gate string, at time.Time) (released int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all() {
		if c.script.Gate == gate && c.state == running && c.exitAt.IsZero() {
			c.exitAt = at
			released++
		}
	}
	if released > 0 {
		p.sync()
	}
	return released
}
