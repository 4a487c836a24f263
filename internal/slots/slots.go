// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slots bounds how many things are under way at once, in total and per node, without making anybody wait for a place:
// who gets none is told to come back when one is free.
package slots

import (
	"slices"
	"sync"
)

// Slots hands out places. Keys without a place stand in line per node; nodes take turns, so that the long line of one node
// does not hold up the others.
type Slots[K comparable] struct {
	total, perNode int
	wake           func(K)

	mu     sync.Mutex
	inUse  int
	byNode map[string]*node[K]
	turns  []string       // nodes with a line, in the order of their turns
	waits  map[K]string   // keys in line, with their nodes
	woken  map[K]struct{} // keys that were woken and have not come back yet
}

type node[K comparable] struct {
	inUse int
	line  []K
}

// New makes total places, perNode of them on one node at most. wake is called, outside any lock, with a key that may try again:
// it must come back, either with Acquire or with Pass.
func New[K comparable](total, perNode int, wake func(K)) *Slots[K] {
	return &Slots[K]{
		total: total, perNode: perNode, wake: wake,
		byNode: map[string]*node[K]{}, waits: map[K]string{}, woken: map[K]struct{}{},
	}
}

// Acquire takes a place on a node. Where none is free it puts the key in line, and returns false.
func (s *Slots[K]) Acquire(nodeName string, key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.woken, key)
	if at, waits := s.waits[key]; waits && at != nodeName {
		s.leave(key)
	}
	n := s.byNode[nodeName]
	if n == nil {
		n = &node[K]{}
		s.byNode[nodeName] = n
	}
	if s.inUse < s.total && n.inUse < s.perNode {
		s.inUse++
		n.inUse++
		s.leave(key)
		return true
	}
	if _, waits := s.waits[key]; !waits {
		if len(n.line) == 0 {
			s.turns = append(s.turns, nodeName)
		}
		n.line = append(n.line, key)
		s.waits[key] = nodeName
	}
	return false
}

// Release gives a place back and wakes the next key in line that can use it.
func (s *Slots[K]) Release(nodeName string) {
	s.mu.Lock()
	s.inUse--
	s.byNode[nodeName].inUse--
	next, found := s.next()
	s.dropIfIdle(nodeName)
	s.mu.Unlock()
	if found {
		s.wake(next)
	}
}

// Pass says that a key needs no place. Where it stands in line it leaves, and where it was woken the next in line is woken instead:
// without this, a place would lie idle for as long as nobody else asks.
func (s *Slots[K]) Pass(key K) {
	s.mu.Lock()
	s.leave(key)
	var next K
	_, found := s.woken[key]
	if found {
		delete(s.woken, key)
		next, found = s.next()
	}
	s.mu.Unlock()
	if found {
		s.wake(next)
	}
}

// InUse is how many places are taken.
func (s *Slots[K]) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

// next takes the key out of the line whose turn it is, among the nodes that have a place free.
func (s *Slots[K]) next() (key K, found bool) {
	if s.inUse >= s.total {
		return key, false
	}
	for _, name := range s.turns {
		n := s.byNode[name]
		if n.inUse >= s.perNode {
			continue
		}
		key = n.line[0]
		s.leave(key)
		if len(n.line) > 0 { // the node's next turn comes after all others'
			s.turns = append(without(s.turns, name), name)
		}
		s.woken[key] = struct{}{}
		return key, true
	}
	return key, false
}

// leave takes a key out of its line.
func (s *Slots[K]) leave(key K) {
	nodeName, waits := s.waits[key]
	if !waits {
		return
	}
	delete(s.waits, key)
	n := s.byNode[nodeName]
	n.line = without(n.line, key)
	if len(n.line) == 0 {
		s.turns = without(s.turns, nodeName)
		s.dropIfIdle(nodeName)
	}
}

// without removes the one place of e in list, where it has one.
func without[E comparable](list []E, e E) []E {
	if i := slices.Index(list, e); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func (s *Slots[K]) dropIfIdle(nodeName string) {
	if n := s.byNode[nodeName]; n != nil && n.inUse == 0 && len(n.line) == 0 {
		delete(s.byNode, nodeName)
	}
}
