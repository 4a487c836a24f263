// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slots bounds how many things are under way at once, in total and per node, without making anybody wait for a place:
// who gets none is told to come back when one is free.
package slots

import "sync"

// Slots hands out places. Keys without a place stand in line per node; nodes take turns, so that the long line of one node
// does not hold up the others.
type Slots[K comparable] struct {
	total, perNode int
	wake           func(K)

	mu     sync.Mutex
	inUse  int
	byNode map[string]*node[K]
	turns  []string // nodes with a line, in the order of their turns
}

type node[K comparable] struct {
	inUse  int
	line   []K
	inLine map[K]struct{}
}

// New makes total places, perNode of them on one node at most. wake is called, outside any lock, with a key that may try again.
func New[K comparable](total, perNode int, wake func(K)) *Slots[K] {
	return &Slots[K]{total: total, perNode: perNode, wake: wake, byNode: map[string]*node[K]{}}
}

// Acquire takes a place on a node. Where none is free it puts the key in line, and returns false.
func (s *Slots[K]) Acquire(nodeName string, key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byNode[nodeName]
	if n == nil {
		n = &node[K]{inLine: map[K]struct{}{}}
		s.byNode[nodeName] = n
	}
	if s.inUse < s.total && n.inUse < s.perNode {
		s.inUse++
		n.inUse++
		return true
	}
	if _, waits := n.inLine[key]; !waits {
		if len(n.line) == 0 {
			s.turns = append(s.turns, nodeName)
		}
		n.line = append(n.line, key)
		n.inLine[key] = struct{}{}
	}
	return false
}

// Release gives a place back and wakes the next key in line that can use it.
func (s *Slots[K]) Release(nodeName string) {
	if key, found := s.release(nodeName); found {
		s.wake(key)
	}
}

// InUse is how many places are taken.
func (s *Slots[K]) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

func (s *Slots[K]) release(nodeName string) (next K, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse--
	s.byNode[nodeName].inUse--
	defer s.dropIfIdle(nodeName)
	for i, name := range s.turns {
		n := s.byNode[name]
		if n.inUse >= s.perNode {
			continue
		}
		next, n.line = n.line[0], n.line[1:]
		delete(n.inLine, next)
		s.turns = append(s.turns[:i:i], s.turns[i+1:]...)
		if len(n.line) > 0 {
			s.turns = append(s.turns, name)
		}
		defer s.dropIfIdle(name)
		return next, true
	}
	return next, false
}

func (s *Slots[K]) dropIfIdle(nodeName string) {
	if n := s.byNode[nodeName]; n != nil && n.inUse == 0 && len(n.line) == 0 {
		delete(s.byNode, nodeName)
	}
}
