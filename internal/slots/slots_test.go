// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Caps, lines and turns; and that no place lies idle while somebody waits for it.

package slots

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlaces is told in steps: "+node/key" asks for a place and gets it, "?node/key" asks in vain, "-node" releases one, "!key" passes,
// "~node" has not answered and "=node" has.
// What follows ">" is the key that must be woken by it. A node may be followed by a namespace: "+node@namespace/key".
func TestPlaces(t *testing.T) {
	cases := map[string]struct {
		total, perNode int
		steps          []string
	}{
		"the cap of a node":                  {9, 2, []string{"+a/1", "+a/2", "?a/3", "+b/4", "+b/5", "?b/6"}},
		"the cap in total":                   {2, 2, []string{"+a/1", "+b/2", "?c/3", "?a/4"}},
		"first come, first served":           {1, 1, []string{"+a/1", "?a/2", "?a/3", "-a >2", "+a/2", "-a >3", "+a/3", "-a"}},
		"first and last take turns":          {1, 1, []string{"+a/1", "?a/2", "?a/3", "?a/4", "?a/5", "-a >2", "+a/2", "-a >5", "+a/5", "?a/6", "-a >3", "+a/3", "-a >6", "+a/6", "-a >4"}},
		"asking twice is one place in line":  {1, 1, []string{"+a/1", "?a/2", "?a/2", "?a/3", "-a >2", "+a/2", "-a >3"}},
		"nodes take turns":                   {1, 1, []string{"+z/0", "?a/1", "?a/2", "?a/3", "?b/4", "?c/5", "-z >1", "+a/1", "-a >4", "+b/4", "-b >5", "+c/5", "-c >3", "+a/3", "-a >2"}},
		"a full node is passed over":         {3, 2, []string{"+a/1", "+a/2", "+b/3", "?a/4", "?b/5", "-b >5"}},
		"nobody can use it":                  {3, 2, []string{"+a/1", "+a/2", "+b/3", "?a/4", "-b", "-a >4"}},
		"a release wakes one":                {2, 2, []string{"+a/1", "+a/2", "?a/3", "?a/4", "-a >3", "-a >4"}},
		"woken, but no longer in need":       {1, 1, []string{"+a/1", "?a/2", "?a/3", "-a >2", "!2 >3", "+a/3"}},
		"woken, and the last in line":        {1, 1, []string{"+a/1", "?a/2", "-a >2", "!2", "+a/3"}},
		"woken, and another was faster":      {1, 1, []string{"+a/1", "?a/2", "?a/3", "-a >2", "+b/9", "?a/2", "-b >2", "+a/2", "-a >3"}},
		"woken, passes, another was faster":  {1, 1, []string{"+a/1", "?a/2", "?a/3", "-a >2", "+b/9", "!2", "-b >3"}},
		"leaves the line":                    {1, 1, []string{"+a/1", "?a/2", "?a/3", "!2", "-a >3"}},
		"leaves the line, as the last":       {1, 1, []string{"+a/1", "?a/2", "!2", "-a", "+b/1"}},
		"gets a place while in line":         {2, 1, []string{"+a/1", "+b/2", "?a/3", "?a/4", "-b", "-a >3", "+a/3", "-a >4"}},
		"found a place before it was woken":  {1, 1, []string{"+a/1", "?a/2", "?a/3", "-a >2", "+a/3", "?a/2", "-a >2"}},
		"its pod moved to another node":      {1, 1, []string{"+a/1", "?a/2", "?b/2", "-a >2", "+b/2", "-b"}},
		"a namespace leaves a quarter":       {8, 8, []string{"+a@x/1", "+a@x/2", "+b@x/3", "+c@x/4", "+d@x/5", "+e@x/6", "?f@x/7", "+f@y/8", "+f@y/9", "?f@y/10", "?f@z/11"}},
		"a namespace leaves some of a node":  {99, 4, []string{"+a@x/1", "+a@x/2", "+a@x/3", "?a@x/4", "+a@y/5", "?a@z/6", "-a@y >6"}},
		"too few to leave any":               {3, 3, []string{"+a@x/1", "+a@x/2", "+a@x/3", "?a@y/4", "-a@x >4"}},
		"what is kept is for those with few": {4, 4, []string{"+a@x/1", "+b@y/2", "+c@z/3", "?a@x/4", "?b@y/5", "+a@w/6", "-a@w", "-c@z >4", "+a@x/4"}},
		"namespaces take turns":              {1, 1, []string{"+a@x/1", "?a@x/2", "?a@x/3", "?a@y/4", "-a@x >2", "+a@x/2", "-a@x >4", "+a@y/4", "-a@y >3"}},
		"one place back is two":              {8, 8, []string{"+a@x/1", "+a@x/2", "+b@y/3", "+b@y/4", "+b@y/5", "+b@y/6", "?b@y/7", "?a@x/8", "-a@x >7", "+b@y/7 >8", "+a@x/8"}},
		"a hung node gets one at a time":     {9, 4, []string{"+a/1", "+a/2", "~a", "~a", "~a", "?a/3", "+b/4", "-a", "?a/5", "-a >3", "+a/3", "?a/6"}},
		"a hung node comes back":             {9, 4, []string{"~a", "~a", "~a", "+a/1", "?a/2", "?a/3", "=a >2", "+a/2 >3", "+a/3", "-a", "~a", "~a", "+a/4"}},
		"passing means nothing to others":    {1, 1, []string{"!7", "+a/1", "!7", "?a/2", "!7", "-a >2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var woken []string
			s := New(tc.total, tc.perNode, func(key string) { woken = append(woken, key) })
			taken := map[Spot]int{}
			for i, step := range tc.steps {
				woken = nil
				var want []string
				var what, next string
				if n, _ := fmt.Sscanf(step, "%s >%s", &what, &next); n == 2 {
					want = []string{next}
				}
				place, key, _ := strings.Cut(what[1:], "/")
				node, namespace, _ := strings.Cut(place, "@")
				at := Spot{node, namespace}
				switch what[0] {
				case '+', '?':
					got := s.Acquire(at, key)
					if got != (what[0] == '+') {
						t.Fatalf("Step %d, %s: got a place: %v", i, step, got)
					}
					if got {
						taken[at]++
					}
				case '-':
					s.Release(at)
					taken[at]--
				case '!':
					s.Pass(node)
				case '~', '=':
					s.Answered(node, what[0] == '=')
				}
				if diff := cmp.Diff(want, woken); diff != "" {
					t.Fatalf("Step %d, %s: woken (-want +got):\n%s", i, step, diff)
				}
				s.check(t)
			}
			for at, n := range taken {
				for range n {
					s.Release(at)
				}
			}
			for len(s.waits)+len(s.woken) > 0 { // they all lose interest
				for _, key := range slices.Concat(slices.Collect(maps.Keys(s.waits)), slices.Collect(maps.Keys(s.woken))) {
					s.Pass(key)
				}
			}
			if s.InUse() != 0 || len(s.byNode)+len(s.lines)+len(s.turns)+len(s.waits)+len(s.woken)+len(s.inUse.byNamespace) > 0 {
				t.Errorf("Something is left: %d in use, nodes %v, turns %v, waiting %v, woken %v", s.InUse(), s.byNode, s.turns, s.waits, s.woken)
			}
		})
	}
}

// check looks at what must always hold.
func (s *Slots[K]) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	inUse, inLine, free := 0, 0, false
	turns := map[Spot]bool{}
	for _, at := range s.turns {
		if turns[at] {
			t.Errorf("%v has two turns", at)
		}
		turns[at] = true
	}
	for name, node := range s.byNode {
		inUse += node.all
		if node.all > s.perNode || node.all <= 0 {
			t.Errorf("Node %s has %d in use", name, node.all)
		}
	}
	for at, l := range s.lines {
		inLine += len(l.keys)
		if !turns[at] || len(l.keys) == 0 {
			t.Errorf("%v has %d in line, and a turn: %v", at, len(l.keys), turns[at])
		}
		free = free || s.free(at)
	}
	if inUse != s.inUse.all || inUse > s.total || inLine != len(s.waits) || len(turns) != len(s.lines) {
		t.Errorf("%d in use by nodes, %d in total, %d in line, %d waiting, %d turns, %d lines", inUse, s.inUse.all, inLine, len(s.waits), len(turns), len(s.lines))
	}
	if free && len(s.woken) == 0 {
		t.Error("A place lies idle while somebody waits for it")
	}
}

// TestNoWakeUpIsLost has many keys work at once, each only when it gets a place, and come back only when woken: were a wake-up lost, the
// others would wait for ever.
func TestNoWakeUpIsLost(t *testing.T) {
	const keys, nodes, rounds, total, perNode = 200, 7, 30, 16, 4
	wake := make([]chan struct{}, keys)
	for i := range wake {
		wake[i] = make(chan struct{}, 1)
	}
	s := New(total, perNode, func(key int) {
		select {
		case wake[key] <- struct{}{}:
		default: // it is about to look anyway
		}
	})
	var inUse, most atomic.Int64
	var perNodeInUse [nodes]atomic.Int64
	var all sync.WaitGroup
	for key := range keys {
		node := key % nodes
		at := Spot{fmt.Sprint(node), fmt.Sprint(key % 3)}
		random := rand.New(rand.NewPCG(1, uint64(key)))
		all.Go(func() {
			for range rounds {
				if random.IntN(4) == 0 { // looked at, but needs no place
					s.Pass(key)
					continue
				}
				for !s.Acquire(at, key) {
					<-wake[key]
					if random.IntN(8) == 0 { // changed its mind
						s.Pass(key)
					}
				}
				n := inUse.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if perNodeInUse[node].Add(1) > perNode {
					t.Error("More than perNode on a node")
				}
				time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
				perNodeInUse[node].Add(-1)
				inUse.Add(-1)
				s.Release(at)
			}
			s.Pass(key)
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("Somebody waits for ever: %d in use, waiting %v", s.InUse(), s.waits)
	}
	if most.Load() > total {
		t.Errorf("%d at once, want %d at most", most.Load(), total)
	}
	s.check(t)
	if s.InUse() != 0 || len(s.byNode) > 0 || len(s.waits) > 0 {
		t.Errorf("Something is left: %d in use, nodes %v, waiting %v", s.InUse(), s.byNode, s.waits)
	}
}
