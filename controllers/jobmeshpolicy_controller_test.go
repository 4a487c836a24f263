// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The policy controller: when it writes, what it does when it cannot, and what it forgets.

package controllers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/metrics"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// policyBench is a policy reconciler that reads and writes through one fake client.
type policyBench struct {
	*bench
	r        *JobMeshPolicyReconciler
	writes   int
	writeErr error
}

func newPolicyBench(t *testing.T, objects ...client.Object) *policyBench {
	t.Helper()
	b := &policyBench{bench: newBench(t, objects...)}
	writer := interceptor.NewClient(b.cached.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			b.writes++
			if b.writeErr != nil {
				return b.writeErr
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	b.r = &JobMeshPolicyReconciler{
		Cached: b.cached, Writer: writer, Ledger: b.Ledger, Metrics: b.Metrics, Clock: b.clock, Defaults: b.Defaults, StatusInterval: DefaultStatusInterval,
		written: map[types.NamespacedName]written{},
	}
	return b
}

func (b *policyBench) look() time.Duration {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: reapKey})
	if err != nil {
		b.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (b *policyBench) status() v1alpha1.JobMeshPolicyStatus {
	b.t.Helper()
	var p v1alpha1.JobMeshPolicy
	if err := b.cached.Get(b.t.Context(), reapKey, &p); err != nil {
		b.t.Fatal(err)
	}
	return p.Status
}

func (b *policyBench) wantWrites(want int) {
	b.t.Helper()
	if b.writes != want {
		b.t.Errorf("%d writes, want %d", b.writes, want)
	}
}

func TestStatusIsWrittenSeldom(t *testing.T) {
	b := newPolicyBench(t, build.MakePolicy("reap").Obj())
	b.look()
	b.wantWrites(1)
	b.clock.Step(time.Minute)
	b.look()
	b.wantWrites(1) // nothing changed

	b.Ledger.AddReap(reapKey, b.clock.Now())
	b.look()
	b.wantWrites(2)
	for range 5 {
		b.clock.Step(time.Second)
		b.Ledger.AddReap(reapKey, b.clock.Now())
		if after := b.look(); after <= 0 || after > DefaultStatusInterval {
			t.Errorf("Looks again in %v", after)
		}
	}
	b.wantWrites(2)
	b.clock.Step(b.look())
	if after := b.look(); after != 0 {
		t.Errorf("Looks again in %v after the write", after)
	}
	b.wantWrites(3)
	if got := *b.status().ReapedPods; got != 6 {
		t.Errorf("%d reaped pods, want 6", got)
	}
}

func TestANewSpecIsAnsweredAtOnce(t *testing.T) {
	b := newPolicyBench(t, build.MakePolicy("reap").Obj())
	b.look()
	var p v1alpha1.JobMeshPolicy
	if err := b.cached.Get(t.Context(), reapKey, &p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Mode, p.Generation = v1alpha1.ModeDryRun, p.Generation+1
	if err := b.cached.Update(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	b.look()
	b.wantWrites(2)
	status := b.status()
	if want := "Ready=True/Active: The policy is in force, with mode DryRun."; !slices.Contains(conditionsOf(status), want) || *status.ObservedGeneration != p.Generation {
		t.Errorf("Status %v of generation %d", conditionsOf(status), *status.ObservedGeneration)
	}
	b.wantMetric(1, "jobmesh_policies", "default", "DryRun")
	b.wantMetric(1, "jobmesh_policies")
}

// TestANewSpecIsAnsweredOnce has the cache show the policy as it was before its first answer.
func TestANewSpecIsAnsweredOnce(t *testing.T) {
	p := build.MakePolicy("reap").Obj()
	p.Generation = 3
	b := newPolicyBench(t, p)
	var stale v1alpha1.JobMeshPolicy
	if err := b.cached.Get(t.Context(), reapKey, &stale); err != nil {
		t.Fatal(err)
	}
	b.look()
	b.wantWrites(1)
	b.r.Cached = interceptor.NewClient(b.cached.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*v1alpha1.JobMeshPolicy))
			return nil
		},
	})
	b.Ledger.AddReap(reapKey, b.clock.Now())
	if after := b.look(); after != DefaultStatusInterval {
		t.Errorf("Looks again in %v, want %v", after, DefaultStatusInterval)
	}
	b.wantWrites(1)
}

func TestReapsSurviveAFailedWrite(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "jobmeshpolicies"}
	for name, err := range map[string]error{
		"a conflict": apierrors.NewConflict(resource, "reap", nil), "any other error": errServer,
	} {
		t.Run(name, func(t *testing.T) {
			b := newPolicyBench(t, build.MakePolicy("reap").Obj())
			b.look()
			b.clock.Step(time.Minute)
			b.Ledger.AddReap(reapKey, b.clock.Now())
			b.writeErr = err
			if _, err := b.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: reapKey}); err == nil {
				t.Error("No error returned")
			}
			for range 10 { // pods go on ending
				b.Ledger.AddReap(reapKey, b.clock.Now())
				if after := b.look(); after != time.Second {
					t.Errorf("Looks again in %v after a failure, want a second", after)
				}
			}
			b.wantWrites(2)
			b.clock.Step(time.Second)
			if _, err := b.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: reapKey}); err == nil {
				t.Error("No error returned")
			}
			if after := b.look(); after != 2*time.Second {
				t.Errorf("Looks again in %v after two failures, want two seconds", after)
			}
			b.clock.Step(2 * time.Second)
			b.writeErr = nil
			b.look()
			if status := b.status(); *status.ReapedPods != 11 || !status.LastReapTime.Time.Equal(b.clock.Now().Add(-3*time.Second)) {
				t.Errorf("%d reaped, the last at %v", *status.ReapedPods, status.LastReapTime)
			}
		})
	}
}

// TestAStaleStatusIsNotAddedTo has the cache show a status of before the last write: adding to it would lose reaps.
func TestAStaleStatusIsNotAddedTo(t *testing.T) {
	b := newPolicyBench(t, build.MakePolicy("reap").Obj())
	b.look()
	var stale v1alpha1.JobMeshPolicy
	if err := b.cached.Get(t.Context(), reapKey, &stale); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(time.Minute)
	b.Ledger.AddReap(reapKey, b.clock.Now())
	b.look()
	b.Ledger.AddReap(reapKey, b.clock.Now())
	if err := b.r.write(t.Context(), &stale, overlap{}); !apierrors.IsConflict(err) {
		t.Errorf("Got %v, want a conflict", err)
	}
	b.clock.Step(time.Minute)
	b.look()
	if got := *b.status().ReapedPods; got != 2 {
		t.Errorf("%d reaped pods, want 2", got)
	}
}

func TestAPolicyThatIsGoneIsForgotten(t *testing.T) {
	b := newPolicyBench(t, build.MakePolicy("reap").Obj())
	b.look()
	b.wantMetric(1, "jobmesh_policies")
	b.Ledger.AddReap(reapKey, b.clock.Now())
	b.Metrics.PodReaped(reapKey.Namespace, reapKey.Name, metrics.ResultSucceeded)
	b.wantMetric(1, "jobmesh_reaped_pods_total")
	if err := b.cached.Delete(t.Context(), build.MakePolicy("reap").Obj()); err != nil {
		t.Fatal(err)
	}
	b.look()
	b.wantMetric(0, "jobmesh_policies")
	b.wantMetric(0, "jobmesh_reaped_pods_total")
	if reaps := b.Ledger.TakeReaps(reapKey); reaps.Pods != 0 {
		t.Errorf("%d reaps wait for a policy of that name", reaps.Pods)
	}
	if len(b.r.written) != 0 {
		t.Errorf("Still remembered: %v", b.r.written)
	}
	b.wantWrites(1)
}

func TestCountsReachTheStatus(t *testing.T) {
	b := newPolicyBench(t, build.MakePolicy("reap").Obj(), stuck("stuck").Obj(), stuck("blocked").HostNetwork().Obj(), running("busy").Obj())
	for _, name := range []string{"stuck", "blocked", "busy"} {
		b.reconcile(name)
	}
	if !slices.Contains(b.changed, "default/reap") {
		t.Errorf("Told of changes: %v", b.changed)
	}
	b.look()
	pods := b.status().Pods
	if diff := cmp.Diff(&v1alpha1.PodCounts{Selected: new(int32(3)), Stuck: new(int32(2)), Blocked: new(int32(1))}, pods); diff != "" {
		t.Errorf("Pods (-want +got):\n%s", diff)
	}
}

// TestASpecReachesItsNeighbours checks which policies a change of one has looked at again.
func TestASpecReachesItsNeighbours(t *testing.T) {
	changed := build.MakePolicy("reap").Obj()
	b := newPolicyBench(t, changed, build.MakePolicy("one").Obj(), build.MakePolicy("far").Namespace("elsewhere").Obj())
	if diff := cmp.Diff([]string{"default/one", "default/reap"}, wokenBy(t, &b.r.wakeup, 2, func() { b.r.specChanged(t.Context(), changed) })); diff != "" {
		t.Errorf("Policies (-want +got):\n%s", diff)
	}
}
