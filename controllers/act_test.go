// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Acting: who is asked and who is not, what each outcome leads to, and what ends an attempt.

package controllers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestAStuckPodIsAskedOnce(t *testing.T) {
	b := enforcing(t, stuck("pod").Obj())
	result := b.reconcile("pod")
	want := []ask{{quit.RoutePortForward, quit.Target{Namespace: "default", Pod: "pod", Container: "istio-proxy", Port: 15020}}}
	if diff := cmp.Diff(want, b.quitter.asks); diff != "" {
		t.Errorf("Attempts (-want +got):\n%s", diff)
	}
	if result.RequeueAfter != 10*time.Second { // 5 s to show up, and the 5 s that an agent drains
		t.Errorf("Looks again in %v, want 10s", result.RequeueAfter)
	}
	for range 3 {
		b.reconcile("pod")
	}
	b.wantAsks(1)
	b.wantMetric(1, "jobmesh_quit_attempts_total", "default", "reap", "accepted", "PortForward")
	b.wantMetric(1, "jobmesh_app_finished_to_quit_seconds")
	if b.slots.InUse() != 0 {
		t.Errorf("%d places are still taken", b.slots.InUse())
	}
}

// TestAStaleCacheHarmsNobody has the cache say that a pod is stuck while the API server knows better.
func TestAStaleCacheHarmsNobody(t *testing.T) {
	deleted := func(pod *corev1.Pod) {
		pod.DeletionTimestamp = &metav1.Time{Time: benchTime}
		pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	}
	cases := map[string]struct {
		live       *build.Pod // nil: gone
		wantReason verdict.Reason
	}{
		"the app runs again":          {build.MakePod("pod").App("app", build.Running()).Proxy(build.Running()), verdict.AppRunning},
		"another pod of that name":    {stuck("pod").With(func(pod *corev1.Pod) { pod.UID = "another" }), verdict.Stuck},
		"another run of the proxy":    {stuck("pod").With(runOf("another")), verdict.Stuck},
		"the pod is gone":             {nil, ""},
		"the pod is being deleted":    {stuck("pod").With(deleted), verdict.PodTerminating},
		"the proxy has terminated":    {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)), verdict.ProxyTerminated},
		"the pod has finished":        {endedPod("pod", corev1.PodSucceeded), ""},
		"the pod opted out meanwhile": {stuck("pod").Annotation(v1alpha1.ModeAnnotation, "Disabled"), verdict.OptedOut},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := enforcing(t, stuck("pod").Obj())
			b.lose(stuck("pod").Obj(), b.live)
			if tc.live != nil {
				b.see(tc.live.Obj(), b.live)
			}
			b.reconcile("pod")
			b.wantAsks(0)
			if got := b.recall().Reason; got != tc.wantReason {
				t.Errorf("The ledger says %q, want %q", got, tc.wantReason)
			}
			if b.slots.InUse() != 0 {
				t.Errorf("%d places are still taken", b.slots.InUse())
			}
		})
	}
	t.Run("what the pod changed to is looked at live, and then acted upon", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.see(stuck("pod").With(runOf("another")).Obj(), b.live)
		if after := b.reconcile("pod").RequeueAfter; after != time.Millisecond {
			t.Errorf("Looks again in %v, want at once", after)
		}
		b.reconcile("pod")
		b.wantAsks(1)
	})
	t.Run("an error of the API server is returned, and nobody asked", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.liveErr = errServer
		if _ = b.reconcileError(); b.recall().History.Failures != 0 {
			t.Error("The error counts as a failed attempt")
		}
		b.wantAsks(0)
	})
}

func TestWithoutAPlaceNobodyIsAsked(t *testing.T) {
	b := enforcing(t, stuck("first").Obj(), stuck("second").Obj(), stuck("third").Obj())
	b.places(1, 1)
	b.quitter.before = func(context.Context) {
		if b.quitter.count() == 0 { // while the first is under way
			for _, name := range []string{"second", "third"} {
				if after := b.reconcile(name).RequeueAfter; after != placeAgain {
					t.Errorf("%s looks again in %v, want %v", name, after, placeAgain)
				}
			}
			b.wantAsks(0)
		}
	}
	b.reconcile("first")
	b.wantAsks(1)
	if diff := cmp.Diff([]string{"second"}, b.woken); diff != "" {
		t.Errorf("Woken (-want +got):\n%s", diff)
	}
	// The second no longer needs its place, so the third gets its turn.
	b.see(endedPod("second", corev1.PodSucceeded).Obj(), b.cached, b.live)
	b.reconcile("second")
	if diff := cmp.Diff([]string{"second", "third"}, b.woken); diff != "" {
		t.Errorf("Woken (-want +got):\n%s", diff)
	}
}

// TestOutcomes has each outcome answered once: what is remembered, counted, and when the pod is looked at again.
func TestOutcomes(t *testing.T) {
	type remembered struct {
		Failures, Refusals, Asks int
		Delivered                bool
		Reason                   verdict.Reason
	}
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	cases := map[quit.Outcome]struct {
		want             remembered
		wantMin, wantMax time.Duration
	}{
		quit.OutcomeAccepted:  {remembered{Asks: 1, Delivered: true, Reason: verdict.Quitting}, second(10), second(10)},
		quit.OutcomeUnknown:   {remembered{Asks: 1, Delivered: true, Reason: verdict.Quitting}, second(1), second(1)},
		quit.OutcomeRefused:   {remembered{Failures: 1, Refusals: 1, Reason: verdict.Backoff}, second(.2), second(.3)},
		quit.OutcomeForbidden: {remembered{Failures: 1, Reason: verdict.Backoff}, second(.8), second(1.2)},
		quit.OutcomeRejected:  {remembered{Failures: 1, Reason: verdict.Backoff}, second(.8), second(1.2)},
		quit.OutcomeTimeout:   {remembered{Failures: 1, Delivered: true, Reason: verdict.Backoff}, second(.8), second(1.2)},
		quit.OutcomeError:     {remembered{Failures: 1, Reason: verdict.Backoff}, second(.8), second(1.2)},
	}
	if len(cases) != len(quit.Outcomes()) {
		t.Fatalf("%d outcomes are tested, there are %d", len(cases), len(quit.Outcomes()))
	}
	for outcome, tc := range cases {
		t.Run(string(outcome), func(t *testing.T) {
			b := enforcing(t, stuck("pod").Obj())
			b.quitter.outcomes = []quit.Outcome{outcome}
			after := b.reconcile("pod").RequeueAfter
			if after < tc.wantMin || after > tc.wantMax {
				t.Errorf("Looks again in %v, want %v to %v", after, tc.wantMin, tc.wantMax)
			}
			h := b.recall().History
			got := remembered{h.Failures, h.Refusals, h.Asks, h.Delivered, b.recall().Reason}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("History (-want +got):\n%s", diff)
			}
			if !h.RetryAt.IsZero() && h.RetryAt.Sub(benchTime) != after {
				t.Errorf("The next attempt is due in %v, the next look in %v", h.RetryAt.Sub(benchTime), after)
			}
			if !h.AskAgainAt.IsZero() && h.AskAgainAt.Sub(benchTime) != after {
				t.Errorf("It is asked again in %v, the next look is in %v", h.AskAgainAt.Sub(benchTime), after)
			}
			b.wantMetric(1, "jobmesh_quit_attempts_total", "default", "reap", string(outcome), "PortForward")
			b.wantMetric(1, "jobmesh_quit_attempts_total")
			b.wantMetric(1, "jobmesh_quit_duration_seconds", string(outcome), "PortForward")
			b.wantMetric(1, "jobmesh_stuck_pods", "reap", "Wait", string(tc.want.Reason))
			// Not before its time, but then again.
			b.reconcile("pod")
			b.wantAsks(1)
			b.clock.Step(after)
			b.reconcile("pod")
			b.wantAsks(2)
			if events := b.heard(); len(events) != 0 {
				t.Errorf("A single attempt is no news: %q", events)
			}
		})
	}
}

// TestTheProxyRestartsAfterTheQuit chases a proxy that the kubelet starts again and again.
func TestTheProxyRestartsAfterTheQuit(t *testing.T) {
	b := enforcing(t, stuck("pod").Obj())
	b.reconcile("pod")
	var waits []time.Duration
	for run := range 4 {
		b.see(stuck("pod").With(runOf("run-"+string(rune('a'+run)))).Obj(), b.cached, b.live)
		after := b.reconcile("pod").RequeueAfter
		b.wantAsks(run + 1)
		if known := b.recall(); known.Reason != verdict.Backoff || known.History.Failures != run+1 || known.History.Delivered || known.Reaped {
			t.Errorf("After restart %d the ledger says %+v", run+1, known)
		}
		waits = append(waits, after)
		b.clock.Step(after)
		b.reconcile("pod")
		b.wantAsks(run + 2)
	}
	for i, base := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if waits[i] < base*8/10 || waits[i] > base*12/10 {
			t.Errorf("Backs off by %v after restart %d, want about %v", waits[i], i+1, base)
		}
	}
	b.wantMetric(0, "jobmesh_reaped_pods_total")
}

func TestExecFallback(t *testing.T) {
	routes := func(b *bench, attempts int) []quit.Route {
		b.quitter.outcomes = []quit.Outcome{quit.OutcomeError}
		for range attempts {
			b.reconcile("pod")
			b.clock.Step(2 * time.Minute)
		}
		var routes []quit.Route
		for _, a := range b.quitter.asks {
			routes = append(routes, a.Route)
		}
		return routes
	}
	wanted := build.MakePolicy("reap").Quit(10, v1alpha1.QuitFallbackExec).Obj()
	port0 := stuck("pod").Annotation("status.sidecar.istio.io/port", "0")
	const forward, exec = quit.RoutePortForward, quit.RouteExec
	cases := map[string]struct {
		pod     *build.Pod
		policy  *v1alpha1.JobMeshPolicy
		allowed bool
		want    []quit.Route
	}{
		"after three failures, and every fourth time": {stuck("pod"), wanted, true, []quit.Route{forward, forward, forward, exec, forward, forward, forward, exec, forward}},
		"never where it is not allowed":               {stuck("pod"), wanted, false, slices.Repeat([]quit.Route{forward}, 9)},
		"never where no policy wants it":              {stuck("pod"), build.MakePolicy("reap").Obj(), true, slices.Repeat([]quit.Route{forward}, 9)},
		"always where there is no port":               {port0, wanted, true, slices.Repeat([]quit.Route{exec}, 9)},
		"nothing where there is no port and no right": {port0, wanted, false, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.pod.Obj(), tc.policy)
			b.Defaults.AllowExecFallback = tc.allowed
			if diff := cmp.Diff(tc.want, routes(b, 9)); diff != "" {
				t.Errorf("Routes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAttemptContext has the operator told to stop in the middle of an attempt.
func TestAttemptContext(t *testing.T) {
	type start = func(*PodReconciler, context.Context) (context.Context, context.CancelFunc)
	begin := func(timeout time.Duration) start {
		return func(r *PodReconciler, parent context.Context) (context.Context, context.CancelFunc) {
			return r.attemptContext(parent, timeout)
		}
	}
	cases := map[string]struct {
		begin  start
		stopAt time.Duration // -1: never
		want   time.Duration // when the attempt's context ends
	}{
		"its own time":                           {begin(10 * time.Second), -1, 10 * time.Second},
		"it survives the stop for the grace":     {begin(10 * time.Second), 2 * time.Second, 5 * time.Second},
		"but not beyond its own time":            {begin(4 * time.Second), 2 * time.Second, 4 * time.Second},
		"one begun after the stop has the grace": {begin(10 * time.Second), 0, 3 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, stop := context.WithCancel(context.Background())
				defer stop()
				if tc.stopAt == 0 {
					stop()
				} else if tc.stopAt > 0 {
					time.AfterFunc(tc.stopAt, stop)
				}
				began := time.Now()
				ctx, cancel := tc.begin(&PodReconciler{ShutdownGrace: 3 * time.Second}, parent)
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); took != tc.want {
					t.Errorf("Ended after %v, want %v", took, tc.want)
				}
			})
		})
	}
	t.Run("an attempt that ends in time leaves nothing behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // fails where a goroutine is left
			parent, stop := context.WithCancel(context.Background())
			ctx, cancel := (&PodReconciler{ShutdownGrace: time.Hour}).attemptContext(parent, time.Minute)
			stop()
			synctest.Wait()
			if ctx.Err() != nil {
				t.Error("The stop ended the attempt at once")
			}
			began := time.Now()
			cancel()
			synctest.Wait()
			if time.Since(began) != 0 {
				t.Error("It waited for the grace though the attempt had ended")
			}
		})
	})
}

func TestAttemptIsBoundedByThePolicy(t *testing.T) {
	b := newBench(t, stuck("pod").Obj(), build.MakePolicy("reap").Quit(7, v1alpha1.QuitFallbackNone).Obj())
	b.quitter.before = func(ctx context.Context) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > 7*time.Second || left < 5*time.Second {
			t.Errorf("The attempt has %v left, want a little under 7s", left)
		}
	}
	b.reconcile("pod")
	b.wantAsks(1)
}

// TestAPolicyReachesItsPods checks which pods a change of a policy has looked at again.
func TestAPolicyReachesItsPods(t *testing.T) {
	p := build.MakePolicy("reap").Selects("app", "some").Obj()
	b := newBench(t, p, stuck("selected").Label("app", "some").Obj(), stuck("other").Obj(),
		stuck("elsewhere").Namespace("elsewhere").Obj(), build.MakePod("web").Owner("apps/v1", "ReplicaSet").Obj())
	got := wokenBy(t, &b.wakeup, 2, func() { b.policyChanged(t.Context(), p) })
	if diff := cmp.Diff([]string{"default/other", "default/selected"}, got); diff != "" {
		t.Errorf("Pods (-want +got):\n%s", diff)
	}
}
