// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Recording and confirming: what the ledger, the metrics, the events and the log are told.

package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/lifecycle"
	"github.com/jobmesh/jobmesh/internal/metrics"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// The event reasons that are no verdict's reason, and the actions of events.
const (
	eventReaped     = "Reaped"
	eventQuitFailed = "QuitFailed"
	eventIgnored    = "QuitIgnored"
	actionDecide    = "Decide"
	actionQuit      = "Quit"
)

// failingAt are the numbers of failures in a row that a pod's events tell of.
var failingAt = map[int]bool{5: true, 20: true, 100: true}

func failing(history verdict.History) bool { return failingAt[history.Failures] }

// record stores a decision, and announces it where it is news.
func (r *PodReconciler) record(ctx context.Context, in verdict.Input, decision verdict.Decision) {
	known, _ := r.Ledger.Recall(in.Pod)
	switch decision.Reason {
	case verdict.PodFinished:
		// Only a live read sees this: the pod's deletion from the cache is on its way, or was lost.
		r.confirmEnd(ctx, in.Pod, known)
		return
	case verdict.NotJobPod:
		r.Ledger.Forget(client.ObjectKeyFromObject(in.Pod)) // the Job let go of it
		return
	}
	next := ledger.Record{
		Policy:        in.Settings.Policy,
		Injection:     decision.Proxy.Injection,
		Verdict:       decision.Verdict,
		Reason:        decision.Reason,
		Stuck:         decision.IsStuck(),
		AppFinishedAt: decision.AppFinishedAt,
		ProxyRun:      proxyRun(in.Pod),
		History:       in.History,
		Reaped:        known.Reaped,
		JobDeadline:   known.JobDeadline,
	}
	if decision.Reason == verdict.GracePeriod || !in.JobDeadline.IsZero() {
		next.JobDeadline = &in.JobDeadline
	}
	if decision.AppFinishedAt.IsZero() {
		next.History.SeenFinished = time.Time{} // where the whole pod starts anew, so does its grace period
	} else if next.History.SeenFinished.IsZero() {
		next.History.SeenFinished = in.Now.Add(-max(0, in.Now.Sub(decision.AppFinishedAt)))
	}
	reaped := decision.Reason == verdict.ProxyTerminated && in.History.Delivered && !known.Reaped && allEnded(in.Pod)
	next.Reaped = known.Reaped || reaped
	before := r.Ledger.Update(in.Pod, next)
	if reaped {
		r.reaped(ctx, in.Pod, next)
	}
	if before.Verdict == next.Verdict && before.Reason == next.Reason {
		return
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Decided", "verdict", decision.Verdict, "reason", decision.Reason, "policy", in.Settings.Policy)
	switch decision.Verdict {
	case verdict.Blocked:
		r.Events.Eventf(in.Pod, nil, corev1.EventTypeWarning, string(decision.Reason), actionDecide, "%s", decision.Message)
	case verdict.Observe:
		r.Events.Eventf(in.Pod, nil, corev1.EventTypeNormal, string(decision.Reason), actionDecide, "%s", decision.Message)
	}
}

// ignoredAt are the numbers of requests in a row that a pod's events tell of: the proxy may have accepted, and runs on.
var ignoredAt = map[int]bool{3: true, 10: true, 50: true}

// announceFailure tells of failures that go on. Single ones are common in a burst, where apps finish before their proxies are up.
func (r *PodReconciler) announceFailure(pod *corev1.Pod, result quit.Result, history verdict.History) {
	if result.Outcome.Asked() && ignoredAt[history.Asks] {
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, eventIgnored, actionQuit,
			"istio-proxy was asked to quit %d times and still runs; the last answer: %s.", history.Asks, result.Outcome)
	}
	if !result.Outcome.Asked() && failing(history) {
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, eventQuitFailed, actionQuit,
			"%d attempts in a row failed to make istio-proxy quit; the last one: %s.", history.Failures, causeOf(result))
	}
}

// causeOf tells in our own words what came of an attempt, and why.
func causeOf(result quit.Result) string {
	if result.Err == nil {
		return string(result.Outcome)
	}
	return fmt.Sprintf("%s (%s)", result.Outcome, bounded(result.Err.Error()))
}

// fromTheServersCache spares the API server a question to its storage. What comes is at least as new as the watch event that led to
// the question, where one API server answered both; from one that lags behind the pod seems unfinished still, and is read again.
var fromTheServersCache = &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}

// confirmGone looks at a pod that left the cache: finished, or deleted. It returns when to look again, where that is needed.
func (r *PodReconciler) confirmGone(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	known, ok := r.Ledger.Peek(key)
	if !ok || known.Reaped || !known.History.Delivered {
		r.Ledger.Forget(key)
		return 0, nil
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, key, pod, fromTheServersCache)
	switch {
	case apierrors.IsNotFound(err):
		ctrl.LoggerFrom(ctx).V(1).Info("The pod was deleted before its proxy was seen terminated")
		r.Ledger.Forget(key)
	case err != nil:
		return 0, fmt.Errorf("reading a pod that finished: %w", err)
	case pod.UID == known.UID && !finished(pod):
		r.suspects.Store(key, struct{}{}) // it is the cache that lost it
		return time.Millisecond, nil
	default:
		r.confirmEnd(ctx, pod, known)
	}
	return 0, nil
}

// confirmEnd closes the record of a pod that finished. A pod that was asked to quit is reaped where its proxy is seen terminated, and
// only there.
func (r *PodReconciler) confirmEnd(ctx context.Context, pod *corev1.Pod, known ledger.Record) {
	if known.UID == pod.UID && known.History.Delivered && !known.Reaped && proxyTerminated(pod) {
		r.reaped(ctx, pod, known)
	}
	r.Ledger.Forget(client.ObjectKeyFromObject(pod))
}

// reaped tells the world of one reaped pod.
func (r *PodReconciler) reaped(ctx context.Context, pod *corev1.Pod, known ledger.Record) {
	now, result := r.Clock.Now(), resultOf(pod)
	r.Metrics.PodReaped(pod.Namespace, known.Policy, result)
	var took time.Duration
	if !known.History.AskedAt.IsZero() { // an attempt that got no answer has reached the proxy, but nobody knows when
		took = now.Sub(known.History.AskedAt)
		r.Metrics.ProxyExited(took)
	}
	r.Ledger.AddReap(types.NamespacedName{Namespace: pod.Namespace, Name: known.Policy}, now)
	r.Events.Eventf(pod, nil, corev1.EventTypeNormal, eventReaped, actionQuit,
		"istio-proxy was asked to quit after the last app container had finished, and exited. The pod %s.", strings.ToLower(result))
	ctrl.LoggerFrom(ctx).Info("Reaped the pod", "result", result, "policy", known.Policy, "quitToExit", took.String())
}

// proxyTerminated tells whether the proxy exited for good, and not because somebody deleted the pod: then the kubelet stopped it.
func proxyTerminated(pod *corev1.Pod) bool {
	proxy := verdict.ProxyFact(pod)
	if proxy.State != lifecycle.StateTerminated || !proxy.Final {
		return false
	}
	if pod.DeletionTimestamp == nil {
		return true
	}
	// The timestamp is when the grace period ends; the deletion was asked for before it.
	var grace time.Duration
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	return proxy.FinishedAt.Before(pod.DeletionTimestamp.Add(-grace))
}

// allEnded tells whether no container holds the pod up any more. One that the policy ignores may run on; how the pod ends is
// then not known before it does.
func allEnded(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Terminated == nil {
			return false
		}
	}
	return true
}

// resultOf tells how the pod ended, or will: the kubelet fails a pod of which any container ended with a code other than 0.
func resultOf(pod *corev1.Pod) string {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return metrics.ResultSucceeded
	case corev1.PodFailed:
		return metrics.ResultFailed
	}
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.ExitCode != 0 {
			return metrics.ResultFailed
		}
	}
	return metrics.ResultSucceeded
}
