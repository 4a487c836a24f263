// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Acting: look once more, ask the proxy to quit, and remember what came of it.

package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// execEvery is how often an attempt goes by exec where the fallback is allowed: after three port-forwards have failed, and
// then every fourth time.
const execEvery = 4

// act makes one attempt. The decision is made again on the pod as the API server has it now: a port-forward names the pod but not its
// UID, so this is all that stands between a stale cache and a healthy proxy.
func (r *PodReconciler) act(ctx context.Context, in verdict.Input) (reconcile.Result, error) {
	key, cached := client.ObjectKeyFromObject(in.Pod), in.Pod
	ctx, cancel := r.attemptContext(ctx, in.Settings.QuitTimeout)
	defer cancel()

	began := r.Clock.Now()
	live := &corev1.Pod{}
	err := r.Live.Get(ctx, key, live)
	liveRead := r.Clock.Since(began)
	if apierrors.IsNotFound(err) {
		after, err := r.confirmGone(ctx, key)
		return reconcile.Result{RequeueAfter: after}, err
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the pod before the quit: %w", err)
	}
	if live.UID != cached.UID || proxyRun(live) != proxyRun(cached) {
		ctrl.LoggerFrom(ctx).V(1).Info("The pod changed before it was asked to quit; looking again")
		r.suspects.Store(key, struct{}{})
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	decisionBegan := in.Now
	in.Pod, in.Now = live, r.Clock.Now()
	decision := verdict.Decide(in)
	if decision.Verdict != verdict.Quit {
		r.record(ctx, in, decision)
		return reconcile.Result{RequeueAfter: decision.RecheckAfter}, nil
	}

	target := quit.Target{Namespace: live.Namespace, Pod: live.Name, Container: istio.ProxyContainer, Port: decision.Proxy.StatusPort.Port}
	var result quit.Result
	if byExec(in, decision) {
		result = r.Quitter.Exec(ctx, target)
	} else {
		result = r.Quitter.PortForward(ctx, target)
	}
	result.Duration = r.Clock.Since(began)
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("decision", began.Sub(decisionBegan).String(), "liveRead", liveRead.String()))
	return reconcile.Result{RequeueAfter: r.recordAttempt(ctx, in, decision, result)}, nil
}

// byExec tells whether this attempt goes by exec: where there is no port, or the port-forward has failed.
func byExec(in verdict.Input, decision verdict.Decision) bool {
	return in.Settings.ExecFallback && (decision.Proxy.StatusPort.Port == 0 || in.History.Failures%execEvery == execEvery-1)
}

// attemptContext bounds one attempt. An operator that is told to stop finishes what it began, within ShutdownGrace.
func (r *PodReconciler) attemptContext(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), timeout)
	stop := context.AfterFunc(parent, func() {
		select {
		case <-ctx.Done():
		case <-time.After(r.ShutdownGrace):
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// recordAttempt remembers an attempt, counts it, and returns when to look at the pod again.
func (r *PodReconciler) recordAttempt(ctx context.Context, in verdict.Input, decision verdict.Decision, result quit.Result) time.Duration {
	now := r.Clock.Now()
	history := in.History
	switch result.Outcome {
	case quit.OutcomeAccepted:
		history = history.Asked(now, decision.Proxy.Drain)
	case quit.OutcomeUnknown:
		history = history.AskedInVain(now)
	default:
		history = history.Failed(result.Outcome == quit.OutcomeRefused, now, rand.Float64())
		// No answer within the time: the proxy may have heard all the same.
		history.Delivered = history.Delivered || result.Outcome == quit.OutcomeTimeout
	}
	in.History, in.Now = history, now

	log := ctrl.LoggerFrom(ctx).WithValues("outcome", result.Outcome, "route", result.Route, "protocol", result.Protocol,
		"duration", result.Duration.String(), "connect", result.Timings.Connect.String(), "upgrade", result.Timings.Upgrade.String(),
		"exchange", result.Timings.Exchange.String(), "policy", in.Settings.Policy)
	if result.Outcome.Asked() {
		log.Info("Asked the proxy to quit", "asks", history.Asks)
	} else {
		log.V(logLevelOf(history)).Info("Failed to ask the proxy to quit", "failures", history.Failures, "error", errorText(result.Err))
	}
	r.Metrics.QuitAttempted(in.Pod.Namespace, in.Settings.Policy, result.Outcome, result.Route, result.Duration)
	if result.Outcome == quit.OutcomeAccepted && history.Asks == 1 && !decision.AppFinishedAt.IsZero() {
		r.Metrics.QuitAccepted(now.Sub(decision.AppFinishedAt))
	}
	r.announceFailure(in.Pod, result, history)
	r.slots.Answered(in.Pod.Spec.NodeName, result.Outcome != quit.OutcomeTimeout || result.Protocol != "")

	next := verdict.Decide(in)
	r.record(ctx, in, next)
	return max(next.RecheckAfter, time.Millisecond)
}

// logLevelOf shows the failures that an operator should read about, and leaves the refused ones of every burst to the debug log.
func logLevelOf(history verdict.History) int {
	if failing(history) {
		return 0
	}
	return 1
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
