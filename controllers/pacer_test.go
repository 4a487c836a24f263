// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Many changes are one round, none is lost, and nothing is left behind.

package controllers

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		var rounds, others atomic.Int32
		want := func(when string, n int32) {
			t.Helper()
			synctest.Wait()
			if rounds.Load() != n {
				t.Errorf("%s: %d rounds, want %d", when, rounds.Load(), n)
			}
		}
		ask := func() { p.soon("a", func() { rounds.Add(1) }) }
		for range 1000 {
			ask()
		}
		p.soon("b", func() { others.Add(1) })
		want("At once", 0)
		time.Sleep(firstAfter)
		want("Soon", 1)
		ask()
		time.Sleep(againAfter / 2)
		want("Shortly after", 1)
		time.Sleep(againAfter / 2)
		want("A second later", 2)
		time.Sleep(3 * againAfter)
		want("Unasked", 2)
		if others.Load() != 1 {
			t.Errorf("%d rounds for the other namespace", others.Load())
		}
		if len(p.asked) != 0 {
			t.Errorf("Left behind: %v", p.asked)
		}
		ask()
		time.Sleep(firstAfter)
		want("Asked again", 3)
		time.Sleep(3 * againAfter)
	})
}
