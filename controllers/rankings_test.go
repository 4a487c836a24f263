// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Policies are read once per change, and a change is never missed.

package controllers

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// listing counts the Lists, and runs during each, where set, when its answer is already made.
func listing(c client.Client, lists *int, during func()) client.Reader {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*lists++
			err := c.List(ctx, list, opts...)
			if during != nil {
				during()
			}
			return err
		},
	})
}

func TestPoliciesAreReadOncePerChange(t *testing.T) {
	b := newBench(t, build.MakePolicy("one").Obj(), build.MakePolicy("far").Namespace("elsewhere").Obj())
	lists := 0
	reader := listing(b.cached, &lists, nil)
	read := func(namespace string, wantPolicies, wantLists int) {
		t.Helper()
		ranked, err := b.rankings.read(t.Context(), reader, namespace)
		if err != nil || len(ranked) != wantPolicies || lists != wantLists {
			t.Errorf("Got %d policies after %d lists, error %v; want %d after %d", len(ranked), lists, err, wantPolicies, wantLists)
		}
	}
	read("default", 1, 1)
	read("default", 1, 1)
	read("elsewhere", 1, 2)
	read("empty", 0, 3)
	read("empty", 0, 3)
	if err := b.cached.Create(t.Context(), build.MakePolicy("two").Obj()); err != nil {
		t.Fatal(err)
	}
	read("default", 2, 4)
	read("elsewhere", 1, 4)
	b.rankings.forget("default")
	read("default", 2, 5)
}

// TestAChangeDuringTheReadIsNotMissed has a policy change when the others are already read, but not yet kept.
func TestAChangeDuringTheReadIsNotMissed(t *testing.T) {
	b := newBench(t, build.MakePolicy("one").Obj())
	lists := 0
	during := func() {
		if lists == 1 {
			if err := b.cached.Create(t.Context(), build.MakePolicy("two").Obj()); err != nil {
				t.Error(err)
			}
		}
	}
	reader := listing(b.cached, &lists, during)
	for _, want := range []int{1, 2, 2} {
		ranked, err := b.rankings.read(t.Context(), reader, "default")
		if err != nil || len(ranked) != want {
			t.Errorf("Got %d policies, error %v; want %d", len(ranked), err, want)
		}
	}
}

// TestAFailedReadIsNotKept: without the policies there is no decision, and the next one asks again.
func TestAFailedReadIsNotKept(t *testing.T) {
	b := newBench(t, build.MakePolicy("one").Obj())
	failing := interceptor.NewClient(b.cached.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errServer
		},
	})
	if _, err := b.rankings.read(t.Context(), failing, "default"); err == nil {
		t.Error("No error")
	}
	if ranked, err := b.rankings.read(t.Context(), b.cached, "default"); err != nil || len(ranked) != 1 {
		t.Errorf("Got %d policies, error %v", len(ranked), err)
	}
}

// benchListTakes is how long one of the two lists takes.
const benchListTakes = 100 * time.Millisecond

func TestOverlapsArePaced(t *testing.T) {
	b := newBench(t, build.MakePolicy("all").Obj(), build.MakePolicy("lost").Obj(), stuck("pod").Obj())
	lost := build.MakePolicy("lost").Obj()
	lists := 0
	slow := listing(b.cached, &lists, func() { b.clock.Step(benchListTakes) })
	var o overlaps
	find := func(p *v1alpha1.JobMeshPolicy, wantPods, wantLists int) {
		t.Helper()
		got, again, err := o.find(t.Context(), slow, b.clock, p)
		if err != nil || got.pods != wantPods || lists != wantLists {
			t.Errorf("Got %+v after %d lists, error %v; want %d pods after %d lists", got, lists, err, wantPods, wantLists)
		}
		if outOfDate := o.of("default").asOf != o.of("default").changes.Load(); outOfDate != (again > 0) || again > overlapPace*2*benchListTakes {
			t.Errorf("Out of date: %v; asks again in %v", outOfDate, again)
		}
	}
	find(lost, 1, 2)
	find(build.MakePolicy("all").Obj(), 0, 2)
	b.see(stuck("another").Obj(), b.cached)
	o.changed("default")
	find(lost, 1, 2) // too early
	b.clock.Step(overlapPace * 2 * benchListTakes)
	find(lost, 2, 4)
	find(lost, 2, 4)
}
