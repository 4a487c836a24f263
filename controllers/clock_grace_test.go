// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Clocks that jump while a grace period lasts.

package controllers

import (
	"testing"
	"time"

	build "github.com/jobmesh/jobmesh/test/builders"
)

// TestTheClockJumpsDuringTheGracePeriod: the app's end is known by the time of day, which moves; the period lasts as long as it did.
func TestTheClockJumpsDuringTheGracePeriod(t *testing.T) {
	for name, d := range jumps {
		t.Run(name, func(t *testing.T) {
			b := jumpBench(t, build.MakePolicy("reap").Grace(30))
			after := b.reconcile("pod").RequeueAfter
			b.wantAsks(0)
			if after != 29*time.Second {
				t.Errorf("Waits for %v, want 29s: the app ended a second ago", after)
			}
			b.clock.Step(10 * time.Second)
			b.jump(d)
			b.due(19 * time.Second)
		})
	}
}

// TestTheClockIsWrongWhenThePodIsFirstSeen: an end that lies ahead costs no more than one grace period.
func TestTheClockIsWrongWhenThePodIsFirstSeen(t *testing.T) {
	b := jumpBench(t, build.MakePolicy("reap").Grace(30))
	b.jump(-time.Hour)
	b.due(30 * time.Second)
}
