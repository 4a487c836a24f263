// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package slots bounds how many things are under way at once, in total and per node, without making anybody wait for a place:
// who gets none is told to come back when one is free.
package slots

import (
	"slices"
	"sync"
)

// Spot is where a place is taken: on a node, by a namespace.
type Spot struct{ Node, Namespace string }

// Slots hands out places, fairly:
//
//   - A quarter of all places, and of a node's, is kept for namespaces that hold less than a quarter: one whose proxies all hang cannot
//     take every place.
//   - Keys without a place stand in line per spot, and spots take turns: the long line of one node or namespace does not hold up the others.
//   - A node that does not answer gets one place only, until it does.
//   - Within a line the first to have come and the last take turns too: a backlog of thousands, as after a restart, holds up nobody who
//     comes now, and moves all the same.
type Slots[K comparable] struct {
	total, perNode int
	wake           func(K)

	mu     sync.Mutex
	inUse  usage
	byNode map[string]*usage
	silent map[string]int // nodes, and how often in a row they have not answered
	lines  map[Spot]*line[K]
	turns  []Spot         // of spots with a line
	waits  map[K]Spot     // keys in line
	woken  map[K]struct{} // keys that were woken and have not come back yet
}

// usage counts the places in use, and by whom.
type usage struct {
	all         int
	byNamespace map[string]int
}

func (u *usage) add(namespace string, n int) {
	u.all += n
	if u.byNamespace == nil {
		u.byNamespace = map[string]int{}
	}
	if u.byNamespace[namespace] += n; u.byNamespace[namespace] == 0 {
		delete(u.byNamespace, namespace)
	}
}

// free tells whether the namespace may take one more place of limit.
func (u *usage) free(limit int, namespace string) bool {
	if u == nil {
		return true
	}
	kept := limit / 4
	return u.all < limit-kept || u.all < limit && u.byNamespace[namespace] < kept
}

type line[K comparable] struct {
	keys []K
	last bool // the next turn is that of the last to have come
}

// New makes total places, perNode of them on one node at most. wake is called, outside any lock, with a key that may try again:
// it must come back, either with Acquire or with Pass.
func New[K comparable](total, perNode int, wake func(K)) *Slots[K] {
	return &Slots[K]{
		total: total, perNode: perNode, wake: wake,
		byNode: map[string]*usage{}, silent: map[string]int{}, lines: map[Spot]*line[K]{}, waits: map[K]Spot{}, woken: map[K]struct{}{},
	}
}

// Acquire takes a place. Where none is free it puts the key in line, and returns false.
func (s *Slots[K]) Acquire(at Spot, key K) bool {
	s.mu.Lock()
	delete(s.woken, key)
	if before, waits := s.waits[key]; waits && before != at {
		s.leave(key)
	}
	if !s.free(at) {
		if _, waits := s.waits[key]; !waits {
			s.join(at, key)
		}
		s.mu.Unlock()
		return false
	}
	s.leave(key)
	s.inUse.add(at.Namespace, 1)
	if s.byNode[at.Node] == nil {
		s.byNode[at.Node] = &usage{}
	}
	s.byNode[at.Node].add(at.Namespace, 1)
	s.wakeNext() // what was given back may be enough for two, of which only one was kept for some
	return true
}

// Release gives a place back and wakes the next key in line that can use it.
func (s *Slots[K]) Release(at Spot) {
	s.mu.Lock()
	s.inUse.add(at.Namespace, -1)
	if node := s.byNode[at.Node]; node.all > 1 {
		node.add(at.Namespace, -1)
	} else {
		delete(s.byNode, at.Node)
	}
	s.wakeNext()
}

// hungAfter is how many attempts in a row a node may leave unanswered before it gets one at a time. maxSilent bounds what is kept of
// nodes that never come back.
const hungAfter, maxSilent = 3, 10_000

// Answered notes whether a node has answered an attempt. The API server holds a request to a kubelet that hangs long after the
// client has gone, so the fewer of them the better; and places that wait for nothing are missed elsewhere.
func (s *Slots[K]) Answered(node string, answered bool) {
	s.mu.Lock()
	if answered {
		delete(s.silent, node)
		s.wakeNext()
		return
	}
	defer s.mu.Unlock()
	if len(s.silent) >= maxSilent {
		clear(s.silent)
	}
	s.silent[node]++
}

// Pass says that a key needs no place. Where it stands in line it leaves, and where it was woken the next in line is woken instead:
// without this, a place would lie idle for as long as nobody else asks.
func (s *Slots[K]) Pass(key K) {
	s.mu.Lock()
	s.leave(key)
	if _, woken := s.woken[key]; !woken {
		s.mu.Unlock()
		return
	}
	delete(s.woken, key)
	s.wakeNext()
}

// InUse is how many places are taken.
func (s *Slots[K]) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse.all
}

func (s *Slots[K]) free(at Spot) bool {
	perNode := s.perNode
	if s.silent[at.Node] >= hungAfter {
		perNode = 1
	}
	return s.inUse.free(s.total, at.Namespace) && s.byNode[at.Node].free(perNode, at.Namespace)
}

// wakeNext wakes the key whose turn it is, where there is a place for it, and unlocks.
func (s *Slots[K]) wakeNext() {
	key, found := s.next()
	s.mu.Unlock()
	if found {
		s.wake(key)
	}
}

// next takes the key whose turn it is out of its line. Keys that were woken and have not come back yet count as if they had a place.
func (s *Slots[K]) next() (key K, found bool) {
	if s.inUse.all+len(s.woken) >= s.total {
		return key, false
	}
	i := slices.IndexFunc(s.turns, s.free)
	if i < 0 {
		return key, false
	}
	at := s.turns[i]
	l := s.lines[at]
	place := 0
	if l.last {
		place = len(l.keys) - 1
	}
	l.last = !l.last
	key = l.keys[place]
	l.keys = slices.Delete(l.keys, place, place+1)
	delete(s.waits, key)
	s.woken[key] = struct{}{}
	s.turns = slices.Delete(s.turns, i, i+1)
	if len(l.keys) > 0 { // the spot's next turn comes after all others'
		s.turns = append(s.turns, at)
	} else {
		delete(s.lines, at)
	}
	return key, true
}

// join puts a key in line.
func (s *Slots[K]) join(at Spot, key K) {
	l := s.lines[at]
	if l == nil {
		l = &line[K]{}
		s.lines[at] = l
		s.turns = append(s.turns, at)
	}
	l.keys = append(l.keys, key)
	s.waits[key] = at
}

// leave takes a key out of its line, wherever it stands.
func (s *Slots[K]) leave(key K) {
	at, waits := s.waits[key]
	if !waits {
		return
	}
	delete(s.waits, key)
	l := s.lines[at]
	l.keys = without(l.keys, key)
	if len(l.keys) == 0 {
		delete(s.lines, at)
		s.turns = without(s.turns, at)
	}
}

// without removes the one place of e in list.
func without[E comparable](list []E, e E) []E {
	i := slices.Index(list, e)
	return slices.Delete(list, i, i+1)
}
