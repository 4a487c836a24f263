// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The pod controller: gather, decide, act, confirm, record.

package controllers

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/slots"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

const (
	// deciders are workers beside those that may be busy with an attempt: a full house of attempts does not stop decisions.
	deciders = 8
	// placeAgain is when a pod that found no free place looks by itself, should it not be woken: never, unless there is a bug.
	placeAgain = time.Minute
)

// Quitter asks one proxy to quit.
type Quitter interface {
	PortForward(context.Context, quit.Target) quit.Result
	Exec(context.Context, quit.Target) quit.Result
}

// PodReconciler reaps stuck pods.
type PodReconciler struct {
	// Cached reads from the cache, Live from the API server.
	Cached, Live client.Reader
	Quitter      Quitter
	Events       events.EventRecorder
	Ledger       *ledger.Ledger
	Metrics      *metrics.Recorder
	Clock        clock.PassiveClock
	Defaults     policy.Defaults
	// MaxQuits and MaxQuitsPerNode cap the attempts under way, so that one dead node cannot hold the others up.
	MaxQuits, MaxQuitsPerNode int
	// ShutdownGrace is how long an attempt may still take once the operator is told to stop.
	ShutdownGrace time.Duration

	wakeup   wakeup
	pacer    pacer
	rankings rankings
	slots    *slots.Slots[reconcile.Request]
	suspects sync.Map // of types.NamespacedName: pods of which the cache may be wrong
}

// SetupWithManager adds the controller to the manager.
func (r *PodReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.slots = slots.New(r.MaxQuits, r.MaxQuitsPerNode, r.wakeup.add)
	return ctrl.NewControllerManagedBy(mgr).
		Named("pod").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && verdict.JobOf(pod) != nil
		}))).
		Watches(&v1alpha1.JobMeshPolicy{}, eachEvent(r.policyChanged), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.wakeup.source()).
		WithOptions(controllerOptions(r.MaxQuits + deciders)).
		Complete(r)
}

// policyChanged has the pods that a policy may touch looked at again: all pods of Jobs in its namespace, because one that no longer
// selects a pod may hand it to another.
func (r *PodReconciler) policyChanged(ctx context.Context, p client.Object) {
	namespace := p.GetNamespace()
	r.rankings.changed(namespace)
	r.pacer.soon(namespace, func() {
		var pods corev1.PodList
		if err := r.Cached.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list the pods under a policy")
			return
		}
		for i := range pods.Items {
			if verdict.JobOf(&pods.Items[i]) != nil {
				r.wakeup.add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
			}
		}
	})
}

// Reconcile looks at one pod.
func (r *PodReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	in, decision, err := r.decide(ctx, request.NamespacedName)
	if err != nil || decision.Verdict != verdict.Quit {
		// It may have been woken for a place that it no longer needs: that goes to the next in line.
		r.slots.Pass(request)
		return reconcile.Result{RequeueAfter: decision.RecheckAfter}, err
	}
	at := slots.Spot{Node: in.Pod.Spec.NodeName, Namespace: in.Pod.Namespace}
	if !r.slots.Acquire(at, request) {
		return reconcile.Result{RequeueAfter: placeAgain}, nil
	}
	defer r.slots.Release(at)
	defer r.Metrics.QuitBegins()()
	return r.act(ctx, in)
}

// decide reads the pod, decides and records. Of a pod that is gone there is nothing to decide: the verdict is empty.
func (r *PodReconciler) decide(ctx context.Context, key types.NamespacedName) (in verdict.Input, decision verdict.Decision, err error) {
	pod, err := r.read(ctx, key)
	if apierrors.IsNotFound(err) {
		decision.RecheckAfter, err = r.confirmGone(ctx, key)
		return in, decision, err
	}
	if err != nil {
		return in, decision, err
	}
	if in, err = r.gather(ctx, pod); err != nil {
		return in, decision, err
	}
	decision = verdict.Decide(in)
	if decision.Reason == verdict.GracePeriod {
		if in.JobDeadline, err = r.jobDeadline(ctx, pod); err != nil {
			return in, verdict.Decision{}, err
		}
		decision = verdict.Decide(in)
	}
	r.record(ctx, in, decision)
	return in, decision, nil
}

// read takes the pod from the cache. Where the cache was found to be wrong it asks the API server, until the two agree again.
func (r *PodReconciler) read(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	cached := &corev1.Pod{}
	err := r.Cached.Get(ctx, key, cached)
	if _, suspect := r.suspects.Load(key); !suspect {
		return cached, err
	}
	live := &corev1.Pod{}
	err = r.Live.Get(ctx, key, live)
	if apierrors.IsNotFound(err) || err == nil && (finished(live) || live.ResourceVersion == cached.ResourceVersion) {
		r.suspects.Delete(key)
	}
	return live, err
}

// finished tells whether the pod has left the cache's selector, or is about to.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
