// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The resync: what the cache missed is found, and nothing else is troubled.

package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/slots"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// suspected returns the names of the pods that are to be read live.
func (b *bench) suspected() []string {
	var names []string
	b.suspects.Range(func(key, _ any) bool {
		names = append(names, key.(interface{ String() string }).String())
		return true
	})
	slices.Sort(names)
	return names
}

func (b *bench) resync(s *Resync) {
	b.t.Helper()
	s.Pods = b.PodReconciler
	if err := s.run(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func running(name string) *build.Pod {
	return build.MakePod(name).App("app", build.Running()).Proxy(build.Running())
}

// TestResync lets the controller see one state of a pod, and the API server hold another.
func TestResync(t *testing.T) {
	cases := map[string]struct {
		seen          *build.Pod // by the controller; nil: never
		cached        *build.Pod // nil: not in the cache
		live          *build.Pod // nil: gone
		wantSuspected bool
		wantAsks      int // in all, after the suspects were looked at
		wantKept      bool
	}{
		"the cache lacks a stuck pod":         {nil, nil, stuck("pod"), true, 1, true},
		"the cache lacks a running pod":       {nil, nil, running("pod"), true, 0, true},
		"the cache missed the end of the app": {running("pod"), running("pod"), stuck("pod"), true, 1, true},
		"the cache missed the end of the pod": {running("pod"), running("pod"), endedPod("pod", corev1.PodSucceeded), true, 0, false},
		"the cache missed the deletion":       {running("pod"), running("pod"), nil, true, 0, false},
		"all agree that it runs":              {running("pod"), running("pod"), running("pod"), false, 0, true},
		"a stuck one that is known":           {stuck("pod"), stuck("pod"), stuck("pod"), false, 1, true},
		"a stuck one that is so no more":      {stuck("pod"), stuck("pod"), running("pod"), true, 1, true},
		"no Job's":                            {nil, nil, stuck("pod").Owner("", ""), false, 0, false},
		"a Deployment's":                      {nil, nil, stuck("pod").RestartPolicy(corev1.RestartPolicyAlways), false, 0, false},
		"another pod of that name":            {running("pod"), running("pod"), stuck("pod").With(func(p *corev1.Pod) { p.UID = "another" }), true, 1, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := enforcing(t)
			if tc.seen != nil {
				b.see(tc.seen.Obj(), b.cached, b.live)
				b.reconcile("pod")
				b.lose(tc.seen.Obj(), b.cached, b.live)
			}
			if tc.cached != nil {
				b.see(tc.cached.Obj(), b.cached)
			}
			if tc.live != nil {
				b.see(tc.live.Obj(), b.live)
			}
			b.resync(&Resync{})
			if got := len(b.suspected()) > 0; got != tc.wantSuspected {
				t.Errorf("Suspected: %v, want %v", got, tc.wantSuspected)
			}
			if tc.wantSuspected {
				b.reconcile("pod")
			}
			b.wantAsks(tc.wantAsks)
			if got := len(b.Ledger.Keys()) > 0; got != tc.wantKept {
				t.Errorf("Kept: %v, want %v", got, tc.wantKept)
			}
		})
	}
}

// TestASuspectIsReadLiveUntilTheCacheAgrees follows a pod that the cache never heard of, through failures, to its end.
func TestASuspectIsReadLiveUntilTheCacheAgrees(t *testing.T) {
	b := enforcing(t)
	b.see(stuck("pod").Obj(), b.live)
	b.resync(&Resync{})
	b.liveErr = errServer
	_ = b.reconcileError() // does not clear the suspicion
	b.liveErr = nil
	b.quitter.outcomes = []quit.Outcome{quit.OutcomeRefused, quit.OutcomeError, quit.OutcomeAccepted}
	for range 3 {
		b.clock.Step(b.reconcile("pod").RequeueAfter)
	}
	b.wantAsks(3)
	b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.live)
	b.reconcile("pod")
	b.wantReaped(1, "Succeeded")
	if got := b.suspected(); len(got) > 0 {
		t.Errorf("Still suspected: %v", got)
	}

	t.Run("a full house does not clear the suspicion", func(t *testing.T) {
		b := enforcing(t)
		b.see(stuck("pod").Obj(), b.live)
		b.resync(&Resync{})
		b.places(1, 1)
		b.slots.Acquire(slots.Spot{Node: "node", Namespace: "other"}, requestFor("other"))
		b.reconcile("pod")
		b.slots.Release(slots.Spot{Node: "node", Namespace: "other"})
		b.reconcile("pod")
		b.wantAsks(1)
	})
	t.Run("a cache that agrees clears it", func(t *testing.T) {
		b := enforcing(t)
		b.see(running("pod").Obj(), b.live)
		b.resync(&Resync{})
		b.reconcile("pod")
		b.see(running("pod").Obj(), b.cached)
		b.reconcile("pod")
		b.reconcile("pod")
		if n := b.liveReads["*v1.Pod"]; n != 1 || len(b.suspected()) > 0 {
			t.Errorf("Read live %d times more, want once; suspected: %v", n, b.suspected())
		}
	})
}

func TestResyncReadsPageByPage(t *testing.T) {
	b := enforcing(t)
	b.perPage = 2
	var want []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.see(stuck(name).Obj(), b.live)
		want = append(want, "default/"+name)
	}
	b.resync(&Resync{})
	if pages := b.lists(nil); pages != 3 {
		t.Errorf("Read %d pages, want 3", pages)
	}
	if diff := cmp.Diff(want, b.suspected()); diff != "" {
		t.Errorf("Suspected (-want +got):\n%s", diff)
	}
}

func TestResyncLooksAtItsNamespacesOnly(t *testing.T) {
	b := enforcing(t)
	for _, namespace := range []string{"default", "one", "two"} {
		b.see(stuck("pod").Namespace(namespace).Obj(), b.live)
	}
	b.resync(&Resync{Namespaces: []string{"one", "two"}})
	if diff := cmp.Diff([]string{"one/pod", "two/pod"}, b.suspected()); diff != "" {
		t.Errorf("Suspected (-want +got):\n%s", diff)
	}
}

// TestResyncGoesOn has rounds fail, and checks their times.
func TestResyncGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := enforcing(t)
		b.see(stuck("pod").Obj(), b.live)
		b.lists(errServer)
		s := &Resync{Pods: b.PodReconciler, Interval: time.Minute}
		if err := s.run(t.Context()); !errors.Is(err, errServer) {
			t.Errorf("Got %v, want the server's error", err)
		}
		b.lists(errServer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Start(ctx) }()
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if b.lists(errServer) != 0 {
			t.Error("The first round did not wait until the controllers have seen the cluster")
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if pages := b.lists(nil); pages < 4 || len(b.suspected()) != 0 {
			t.Errorf("%d rounds in 5 minutes; suspected %v", pages, b.suspected())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(b.suspected()) != 1 {
			t.Errorf("Suspected %v, want the stuck pod", b.suspected())
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Ended with %v", err)
		}
	})
}

func TestQuietNamespacesAreDropped(t *testing.T) {
	b := newBench(t, build.MakePolicy("reap").Obj())
	s := &Resync{}
	for _, namespace := range []string{"busy", "quiet", "governed"} {
		b.Metrics.QuitAttempted(namespace, "reap", quit.OutcomeAccepted, quit.RoutePortForward, time.Second)
		b.Metrics.PodReaped(namespace, "reap", "Succeeded")
	}
	busy := running("pod").Namespace("busy").Obj()
	b.see(busy, b.cached, b.live)
	if _, err := b.Reconcile(t.Context(), reconcileOf(busy)); err != nil {
		t.Fatal(err)
	}
	quiet := running("pod").Namespace("quiet").Obj()
	b.see(quiet, b.cached, b.live)
	if _, err := b.Reconcile(t.Context(), reconcileOf(quiet)); err != nil {
		t.Fatal(err)
	}
	governed := reapKey
	governed.Namespace = "governed"
	b.Ledger.SetPolicy(governed, string(v1alpha1.ModeEnforce))
	b.resync(s)
	b.lose(quiet, b.cached, b.live)
	if _, err := b.Reconcile(t.Context(), reconcileOf(quiet)); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(59 * time.Minute)
	b.resync(s)
	b.wantMetric(1, "jobmesh_reaped_pods_total", "quiet")
	b.clock.Step(2 * time.Minute)
	b.resync(s)
	b.wantMetric(0, "jobmesh_reaped_pods_total", "quiet")
	b.wantMetric(0, "jobmesh_quit_attempts_total", "quiet")
	b.wantMetric(1, "jobmesh_reaped_pods_total", "busy")
	b.wantMetric(1, "jobmesh_quit_attempts_total", "governed")
}
