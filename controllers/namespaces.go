// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What is kept for each namespace.

package controllers

import "sync"

// perNamespace holds one T for each namespace that was asked for. The zero value is ready to use, and so must a zero T be.
type perNamespace[T any] struct {
	mu     sync.Mutex
	byName map[string]*T
}

// of returns the namespace's T; the first time it makes one.
func (p *perNamespace[T]) of(namespace string) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName == nil {
		p.byName = map[string]*T{}
	}
	t := p.byName[namespace]
	if t == nil {
		t = new(T)
		p.byName[namespace] = t
	}
	return t
}

// forget drops the namespace's T. Who still holds it may go on using it.
func (p *perNamespace[T]) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byName, namespace)
}
