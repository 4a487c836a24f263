// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Pacing: what thousands of changes ask for is done once.

package controllers

import (
	"sync"
	"time"
)

const (
	// firstAfter is how long the first change of several waits for the others, as those of one kubectl apply.
	firstAfter = 50 * time.Millisecond
	// againAfter is the least time between two rounds for one namespace.
	againAfter = time.Second
)

// pacer runs something for a namespace soon after it was asked to, once for all that ask meanwhile. The zero value is ready to use.
type pacer struct {
	mu    sync.Mutex
	asked map[string]bool // namespaces with a timer, and whether somebody asked since it was set
}

// soon has f run for a namespace. Which of the functions given at about the same time runs is not told: they must be alike.
func (p *pacer) soon(namespace string, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		p.asked = map[string]bool{}
	}
	if _, paced := p.asked[namespace]; !paced {
		time.AfterFunc(firstAfter, func() { p.run(namespace, f) })
	}
	p.asked[namespace] = true
}

func (p *pacer) run(namespace string, f func()) {
	p.mu.Lock()
	asked := p.asked[namespace]
	if asked {
		p.asked[namespace] = false
	} else {
		delete(p.asked, namespace)
	}
	p.mu.Unlock()
	if asked {
		f()
		time.AfterFunc(againAfter, func() { p.run(namespace, f) })
	}
}
