// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Confirming and recording: what counts as reaped, once each; which events are told.

package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

var reapKey = client.ObjectKey{Namespace: "default", Name: "reap"}

const reapedEvent = "Normal Reaped istio-proxy was asked to quit after the last app container had finished, and exited. The pod "

// wantReaped checks that the pod was reaped so many times, with the given result, and nothing else was told.
func (b *bench) wantReaped(times int, result string) {
	b.t.Helper()
	b.wantMetric(float64(times), "jobmesh_reaped_pods_total")
	var want []string
	for range times {
		want = append(want, reapedEvent+strings.ToLower(result)+".")
	}
	if times > 0 {
		b.wantMetric(float64(times), "jobmesh_reaped_pods_total", "default", "reap", result)
	}
	if diff := cmp.Diff(want, b.heard()); diff != "" {
		b.t.Errorf("Events (-want +got):\n%s", diff)
	}
	if reaps := b.Ledger.TakeReaps(reapKey); reaps.Pods != int64(times) {
		b.t.Errorf("The policy is owed %d reaps, want %d", reaps.Pods, times)
	}
}

// TestAPodThatAnIgnoredContainerHoldsUp is reaped when that ends: only then is it known how the pod does.
func TestAPodThatAnIgnoredContainerHoldsUp(t *testing.T) {
	b := newBench(t, stuck("pod").App("vault", build.Running()).Obj(), build.MakePolicy("reap").Ignores("vault").Obj())
	b.reconcile("pod")
	b.see(build.MakePod("pod").App("app", build.Exited(0)).App("vault", build.Running()).Proxy(build.Exited(0)).Obj(), b.cached, b.live)
	b.reconcile("pod")
	b.wantMetric(0, "jobmesh_reaped_pods_total")
	b.see(build.MakePod("pod").App("app", build.Exited(0)).App("vault", build.Exited(1)).Proxy(build.Exited(0)).Phase(corev1.PodFailed).Obj(), b.cached, b.live)
	b.reconcile("pod")
	b.wantReaped(1, "Failed")
}

func TestTheProxyIsSeenTerminatedInTheCache(t *testing.T) {
	cases := map[string]struct {
		then       *build.Pod
		wantResult string
	}{
		"all went well":      {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)), "Succeeded"},
		"the app had failed": {build.MakePod("pod").App("app", build.Exited(3)).Proxy(build.Exited(0)), "Failed"},
		"the proxy failed":   {build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(255)), "Failed"},
		"the app was killed": {build.MakePod("pod").App("app", build.ExitedFor(137, "OOMKilled")).Proxy(build.Exited(0)), "Failed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, stuck("pod").App("vault", build.Exited(0)).Obj(), build.MakePolicy("reap").Ignores("vault").Obj())
			b.reconcile("pod")
			b.clock.Step(time.Second)
			b.see(tc.then.Obj(), b.cached, b.live)
			for range 3 {
				b.reconcile("pod")
			}
			b.wantReaped(1, tc.wantResult)
			b.wantMetric(1, "jobmesh_quit_to_proxy_exit_seconds")
			b.wantMetric(0, "jobmesh_stuck_pods")
			// It leaves the cache: no second time, and without another read.
			b.see(tc.then.Phase(corev1.PodSucceeded).Obj(), b.cached, b.live)
			b.reconcile("pod")
			b.wantNothingNew()
			if len(b.liveReads) != 0 {
				t.Errorf("Read live: %v", b.liveReads)
			}
			if keys := b.Ledger.Keys(); len(keys) != 0 {
				t.Errorf("The ledger still holds %v", keys)
			}
		})
	}
}

// wantNothingNew checks that one reap is still one, and that nothing was told again.
func (b *bench) wantNothingNew() {
	b.t.Helper()
	b.wantMetric(1, "jobmesh_reaped_pods_total")
	if events := b.heard(); len(events) != 0 {
		b.t.Errorf("Events told again: %q", events)
	}
}

// TestThePodLeavesTheCache has a pod that was asked leave the cache, and the API server say what became of it.
func TestThePodLeavesTheCache(t *testing.T) {
	another := func(pod *corev1.Pod) { pod.UID = "another" }
	cases := map[string]struct {
		live       *build.Pod // nil: gone
		wantReaped int
		wantResult string
	}{
		"succeeded":                     {endedPod("pod", corev1.PodSucceeded), 1, "Succeeded"},
		"failed":                        {endedPod("pod", corev1.PodFailed), 1, "Failed"},
		"deleted":                       {nil, 0, ""},
		"another pod of that name":      {endedPod("pod", corev1.PodSucceeded).With(another), 0, ""},
		"failed while its proxy runs":   {stuck("pod").Phase(corev1.PodFailed), 0, ""},
		"killed, to be restarted":       {build.MakePod("pod").RestartPolicy(corev1.RestartPolicyOnFailure).App("app", build.Exited(0)).Proxy(build.Exited(137)).Phase(corev1.PodFailed), 0, ""},
		"failed, and lost its statuses": {build.MakePod("pod").App("app", nil).Proxy(nil).Phase(corev1.PodFailed), 0, ""},
	}
	for name, tc := range cases {
		for _, outcome := range []quit.Outcome{quit.OutcomeAccepted, quit.OutcomeUnknown, quit.OutcomeTimeout} {
			t.Run(name+" after "+string(outcome), func(t *testing.T) {
				b := enforcing(t, stuck("pod").Obj())
				b.quitter.outcomes = []quit.Outcome{outcome}
				b.reconcile("pod")
				b.lose(stuck("pod").Obj(), b.cached, b.live)
				if tc.live != nil {
					b.see(tc.live.Obj(), b.live)
				}
				for range 2 {
					if after := b.reconcile("pod").RequeueAfter; after != 0 {
						t.Errorf("Looks again in %v", after)
					}
				}
				b.wantReaped(tc.wantReaped, tc.wantResult)
				exits := float64(tc.wantReaped)
				if outcome == quit.OutcomeTimeout {
					exits = 0 // nobody knows when the proxy heard
				}
				b.wantMetric(exits, "jobmesh_quit_to_proxy_exit_seconds")
				if keys := b.Ledger.Keys(); len(keys) != 0 {
					t.Errorf("The ledger still holds %v", keys)
				}
				b.wantAsks(1)
			})
		}
	}
	t.Run("an error of the API server is tried again, and nothing is lost", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.reconcile("pod")
		b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.cached, b.live)
		b.liveErr = errServer
		if err := b.reconcileError(); !errors.Is(err, errServer) {
			t.Errorf("Got %v", err)
		}
		b.liveErr = nil
		b.reconcile("pod")
		b.wantReaped(1, "Succeeded")
	})
	t.Run("a pod that was never asked costs no read", func(t *testing.T) {
		b := enforcing(t, build.MakePod("pod").App("app", build.Running()).Proxy(build.Running()).Obj())
		b.reconcile("pod")
		b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.cached, b.live)
		b.reconcile("pod")
		if len(b.liveReads) != 0 {
			t.Errorf("Read live: %v", b.liveReads)
		}
		b.wantReaped(0, "")
	})
	t.Run("refused only: the proxy ended by itself", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.quitter.outcomes = []quit.Outcome{quit.OutcomeRefused}
		b.reconcile("pod")
		b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.cached, b.live)
		b.reconcile("pod")
		b.wantReaped(0, "")
	})
	t.Run("it is the cache that lost it: the pod is kept, and asked again", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.reconcile("pod")
		b.lose(stuck("pod").Obj(), b.cached)
		b.reconcile("pod")
		if after := b.reconcile("pod").RequeueAfter; after != 10*time.Second {
			t.Errorf("Looks again in %v, want 10s", after)
		}
		b.clock.Step(10 * time.Second)
		b.reconcile("pod")
		b.wantAsks(2)
		b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.live)
		b.reconcile("pod")
		b.wantReaped(1, "Succeeded")
	})
	t.Run("the API server saw the end before the cache did", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.reconcile("pod")
		b.see(endedPod("pod", corev1.PodSucceeded).Obj(), b.live)
		b.clock.Step(10 * time.Second)
		b.reconcile("pod") // would ask again
		b.lose(stuck("pod").Obj(), b.cached)
		b.reconcile("pod")
		b.wantReaped(1, "Succeeded")
		b.wantAsks(1)
	})
}

func TestAPodThatItsJobLetGoIsForgotten(t *testing.T) {
	b := enforcing(t, stuck("pod").Obj())
	b.reconcile("pod")
	b.see(stuck("pod").Owner("", "").Obj(), b.cached, b.live)
	b.reconcile("pod")
	if keys := b.Ledger.Keys(); len(keys) != 0 {
		t.Errorf("The ledger still holds %v", keys)
	}
}

// TestEvents checks that each change is told once, in words that hold nothing of a tenant's but quoted names.
func TestEvents(t *testing.T) {
	evil := "%s%d\n\x1b[31m"
	disabled := stuck("pod").Annotation("status.sidecar.istio.io/port", evil).With(func(pod *corev1.Pod) {
		pod.Status.Message, pod.Status.Reason = evil, evil
		pod.Status.ContainerStatuses[0].State.Terminated.Message = evil
	})
	cases := map[string]struct {
		pod  *build.Pod
		mode v1alpha1.Mode
		want []string
	}{
		"a stuck pod that may not be touched": {stuck("pod"), v1alpha1.ModeDryRun,
			[]string{`Normal DryRun istio-proxy would be asked to quit, but the mode is DryRun (policy "reap").`}},
		"a pod on the node's network": {stuck("pod").HostNetwork(), v1alpha1.ModeEnforce,
			[]string{"Warning HostNetwork The pod uses the node's network: a port-forward would reach the node's own loopback."}},
		"a status port that is none": {disabled, v1alpha1.ModeEnforce,
			[]string{"Warning StatusPortDisabled The pod disables the proxy's status port, and there is no exec fallback."}},
		"a running app is no news": {build.MakePod("pod").App("app", build.Running()).Proxy(build.Running()), v1alpha1.ModeEnforce, nil},
		"nor is a disabled policy": {stuck("pod"), v1alpha1.ModeDisabled, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.pod.Obj(), build.MakePolicy("reap").Mode(tc.mode).Obj())
			for range 3 {
				b.reconcile("pod")
				b.clock.Step(time.Minute)
			}
			if diff := cmp.Diff(tc.want, b.heard()); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a change back and forth is told again", func(t *testing.T) {
		b := enforcing(t, stuck("pod").HostNetwork().Obj())
		b.reconcile("pod")
		b.see(build.MakePod("pod").HostNetwork().App("app", build.Running()).Proxy(build.Running()).Obj(), b.cached)
		b.reconcile("pod")
		b.see(stuck("pod").HostNetwork().Obj(), b.cached)
		b.reconcile("pod")
		if got := len(b.heard()); got != 2 {
			t.Errorf("Told %d times, want 2", got)
		}
	})
	t.Run("a proxy that accepts and stays", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.quitter.outcomes = []quit.Outcome{quit.OutcomeAccepted}
		for range 12 {
			b.reconcile("pod")
			b.clock.Step(2 * time.Minute)
		}
		want := []string{
			"Warning QuitIgnored istio-proxy was asked to quit 3 times and still runs; the last answer: accepted.",
			"Warning QuitIgnored istio-proxy was asked to quit 10 times and still runs; the last answer: accepted.",
		}
		if diff := cmp.Diff(want, b.heard()); diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
	})
	t.Run("failures that go on, ever more rarely", func(t *testing.T) {
		b := enforcing(t, stuck("pod").Obj())
		b.quitter.outcomes = []quit.Outcome{quit.OutcomeForbidden}
		for range 120 {
			b.reconcile("pod")
			b.clock.Step(2 * time.Minute)
		}
		var want []string
		for _, n := range []string{"5", "20", "100"} {
			want = append(want, "Warning QuitFailed "+n+" attempts in a row failed to make istio-proxy quit; the last one: forbidden (scripted).")
		}
		if diff := cmp.Diff(want, b.heard()); diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
	})
}

// TestNoPodNamesInMetrics runs a pod through its life and looks for its name, and its Job's, in every label.
func TestNoPodNamesInMetrics(t *testing.T) {
	b := enforcing(t, stuck("telltale").Obj(), stuck("telltale-blocked").HostNetwork().Obj())
	b.reconcile("telltale")
	b.reconcile("telltale-blocked")
	b.see(endedPod("telltale", corev1.PodSucceeded).Obj(), b.cached, b.live)
	b.reconcile("telltale")
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if strings.Contains(m.String(), "telltale") {
				t.Errorf("%s: %s", family.GetName(), m)
			}
		}
	}
}

func TestTheGraceStartsAnewWithThePod(t *testing.T) {
	b := newBench(t, stuck("pod").Obj(), build.MakePolicy("reap").Grace(600).Obj())
	b.reconcile("pod")
	if seen := b.recall().History.SeenFinished; !seen.Equal(build.FinishedAt) {
		t.Errorf("Finished at %v, want %v", seen, build.FinishedAt)
	}
	// Every container starts anew, and the app finishes for a second time.
	b.see(build.MakePod("pod").App("app", build.Running()).Proxy(build.Running()).Obj(), b.cached, b.live)
	b.reconcile("pod")
	b.clock.Step(time.Hour)
	again := build.MakePod("pod").App("app", build.ExitedAt(0, b.clock.Now())).Proxy(build.Running()).Obj()
	b.see(again, b.cached, b.live)
	if after := b.reconcile("pod").RequeueAfter; after != 10*time.Minute || b.recall().Reason != verdict.GracePeriod {
		t.Errorf("%s for %v, want the whole grace period", b.recall().Reason, after)
	}
}
