// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The policy controller: it answers in the status of each JobMeshPolicy.

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/metrics"
	"github.com/jobmesh/jobmesh/internal/policy"
)

// DefaultStatusInterval is the least time between two writes of one policy's status.
const DefaultStatusInterval = 10 * time.Second

// JobMeshPolicyReconciler keeps the status of policies.
type JobMeshPolicyReconciler struct {
	// Cached reads from the cache, Writer writes to the API server.
	Cached client.Reader
	Writer client.StatusClient
	// Ledger knows the pods. Its changes reach this controller through Changed.
	Ledger   *ledger.Ledger
	Metrics  *metrics.Recorder
	Clock    clock.PassiveClock
	Defaults policy.Defaults
	// StatusInterval is the least time between two writes of one policy's status.
	StatusInterval time.Duration

	wakeup   wakeup
	pacer    pacer
	overlaps overlaps
	mu       sync.Mutex
	written  map[types.NamespacedName]written
	rounds   map[string]time.Time // by namespace: when its policies are next looked at for overlaps
}

// written is the last write of a policy's status that worked, and what was tried since.
type written struct {
	at         time.Time
	generation int64
	failures   int
	failedAt   time.Time
}

// Changed has the status of a policy looked at again, and a little later those of its neighbours, which may select the same
// pods. It may be called from anywhere.
func (r *JobMeshPolicyReconciler) Changed(policy types.NamespacedName) {
	r.overlaps.changed(policy.Namespace)
	r.wakeup.add(reconcile.Request{NamespacedName: policy})
	if !r.beginsRound(policy.Namespace) {
		return
	}
	for _, neighbour := range r.Ledger.PoliciesIn(policy.Namespace) {
		r.wakeup.addAfter(reconcile.Request{NamespacedName: neighbour}, r.StatusInterval)
	}
}

// beginsRound tells whether no round over the policies of the namespace is due yet. One is enough for all that changes before it.
func (r *JobMeshPolicyReconciler) beginsRound(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	if now.Before(r.rounds[namespace]) {
		return false
	}
	r.rounds[namespace] = now.Add(r.StatusInterval)
	return true
}

// SetupWithManager adds the controller to the manager.
func (r *JobMeshPolicyReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.written, r.rounds = map[types.NamespacedName]written{}, map[string]time.Time{}
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("jobmeshpolicy").
		For(&v1alpha1.JobMeshPolicy{}, specChanged).
		// A policy that appears, changes or goes may outrank its neighbours, or stop doing so.
		Watches(&v1alpha1.JobMeshPolicy{}, eachEvent(r.specChanged), specChanged).
		WatchesRawSource(r.wakeup.source()).
		WithOptions(controllerOptions(2)).
		Complete(r)
}

// specChanged has all policies of a policy's namespace looked at again.
func (r *JobMeshPolicyReconciler) specChanged(ctx context.Context, p client.Object) {
	namespace := p.GetNamespace()
	r.overlaps.changed(namespace)
	r.pacer.soon(namespace, func() {
		var policies v1alpha1.JobMeshPolicyList
		if err := r.Cached.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list the policies of a namespace")
			return
		}
		for i := range policies.Items {
			r.wakeup.add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
		}
	})
}

// Reconcile brings the status of one policy up to date, StatusInterval after the last write at the earliest.
func (r *JobMeshPolicyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	p := &v1alpha1.JobMeshPolicy{}
	if err := r.Cached.Get(ctx, key, p); apierrors.IsNotFound(err) {
		r.Ledger.DropPolicy(key)
		r.Metrics.PolicyGone(key.Namespace, key.Name)
		r.forget(key)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if !p.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	r.Ledger.SetPolicy(key, string(policy.SettingsOf(p, r.Defaults).Mode))
	if wait := r.untilNextWrite(p); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	overlap, again, err := r.overlaps.find(ctx, r.Cached, r.Clock, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, r.write(ctx, p, overlap)
}

// write patches the status where it differs. Reaps that could not be written are kept for the next time.
func (r *JobMeshPolicyReconciler) write(ctx context.Context, p *v1alpha1.JobMeshPolicy, overlap overlap) error {
	key := client.ObjectKeyFromObject(p)
	reaps := r.Ledger.TakeReaps(key)
	updated := p.DeepCopy()
	updated.Status = statusOf(p, overlap, r.Ledger.Count(key), reaps, r.Defaults, r.Clock.Now())
	if equality.Semantic.DeepEqual(p.Status, updated.Status) {
		return nil
	}
	// The lock keeps a count from being added twice to a status that the cache has not seen yet.
	patch := client.MergeFromWithOptions(p.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Writer.Status().Patch(ctx, updated, patch); err != nil {
		r.Ledger.ReturnReaps(key, reaps)
		if apierrors.IsNotFound(err) {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		last := r.written[key]
		last.failures, last.failedAt = last.failures+1, r.Clock.Now()
		r.written[key] = last
		return fmt.Errorf("writing the status: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[key] = written{at: r.Clock.Now(), generation: p.Generation}
	return nil
}

// untilNextWrite lets a new spec be answered at once, but only once: until the cache has seen the answer, another one would conflict
// with it. After a write that failed it waits a second, doubled up to a minute: every pod's every step asks for a write.
func (r *JobMeshPolicyReconciler) untilNextWrite(p *v1alpha1.JobMeshPolicy) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.written[client.ObjectKeyFromObject(p)]
	if last.failures > 0 {
		if wait := min(time.Second<<min(last.failures-1, 6), maxRetry) - r.Clock.Since(last.failedAt); wait > 0 {
			return wait
		}
	}
	observed := p.Status.ObservedGeneration
	if last.generation != p.Generation && (observed == nil || *observed != p.Generation) {
		return 0
	}
	return r.StatusInterval - r.Clock.Since(last.at)
}

func (r *JobMeshPolicyReconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, key)
	if len(r.Ledger.PoliciesIn(key.Namespace)) == 0 {
		delete(r.rounds, key.Namespace)
		r.overlaps.forget(key.Namespace)
	}
}
