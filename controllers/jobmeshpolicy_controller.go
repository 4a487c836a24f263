// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The policy controller: it answers in the status of each JobMeshPolicy.

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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

	wakeup  wakeup
	mu      sync.Mutex
	written map[types.NamespacedName]written
	rounds  map[string]time.Time // by namespace: when its policies are next looked at for overlaps
}

// written is the last write of a policy's status.
type written struct {
	at         time.Time
	generation int64
}

// Changed has the status of a policy looked at again, and a little later those of its neighbours, which may select the same
// pods. It may be called from anywhere.
func (r *JobMeshPolicyReconciler) Changed(policy types.NamespacedName) {
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
		Watches(&v1alpha1.JobMeshPolicy{}, handler.EnqueueRequestsFromMapFunc(r.neighbours), specChanged).
		WatchesRawSource(r.wakeup.source()).
		WithOptions(controllerOptions(2)).
		Complete(r)
}

func (r *JobMeshPolicyReconciler) neighbours(ctx context.Context, o client.Object) []reconcile.Request {
	var policies v1alpha1.JobMeshPolicyList
	if err := r.Cached.List(ctx, &policies, client.InNamespace(o.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list the policies of a namespace")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(policies.Items))
	for i := range policies.Items {
		if policies.Items[i].Name != o.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
		}
	}
	return requests
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
	return reconcile.Result{}, r.write(ctx, p)
}

// write patches the status where it differs. Reaps that could not be written are kept for the next time.
func (r *JobMeshPolicyReconciler) write(ctx context.Context, p *v1alpha1.JobMeshPolicy) error {
	key := client.ObjectKeyFromObject(p)
	overlap, err := r.overlapOf(ctx, p)
	if err != nil {
		return err
	}
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
		return fmt.Errorf("writing the status: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[key] = written{r.Clock.Now(), p.Generation}
	return nil
}

// untilNextWrite lets a new spec be answered at once, but only once: until the cache has seen the answer, another one would conflict
// with it.
func (r *JobMeshPolicyReconciler) untilNextWrite(p *v1alpha1.JobMeshPolicy) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.written[client.ObjectKeyFromObject(p)]
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
}

// overlapOf finds what other policies govern of the pods that this one selects.
func (r *JobMeshPolicyReconciler) overlapOf(ctx context.Context, p *v1alpha1.JobMeshPolicy) (overlap, error) {
	var policies v1alpha1.JobMeshPolicyList
	if err := r.Cached.List(ctx, &policies, client.InNamespace(p.Namespace)); err != nil {
		return overlap{}, fmt.Errorf("listing the policies: %w", err)
	}
	var pods corev1.PodList
	if err := r.Cached.List(ctx, &pods, client.InNamespace(p.Namespace)); err != nil {
		return overlap{}, fmt.Errorf("listing the pods: %w", err)
	}
	return findOverlap(p, policies.Items, pods.Items), nil
}
