// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics holds every metric of JobMesh: named and registered here, written by functions named for what happened.
// Labels are bounded by namespaces, policies and our own words; none names a pod or a Job.
package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/version"
)

// Results of a reaped pod.
const (
	ResultSucceeded = "Succeeded"
	ResultFailed    = "Failed"
)

// Recorder writes the metrics of one operator.
type Recorder struct {
	attempts      *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	reaped        *prometheus.CounterVec
	finishToQuit  prometheus.Histogram
	quitToProxy   prometheus.Histogram
	inFlight      prometheus.Gauge
	gauges        *gauges
	buildInfoOnce prometheus.Gauge
}

// New makes the metrics and registers them. The gauges are computed from the ledger when they are scraped.
func New(registry prometheus.Registerer, l *ledger.Ledger) (*Recorder, error) {
	r := &Recorder{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "jobmesh_quit_attempts_total",
			Help: "Attempts to make a proxy quit, by what came of them.",
		}, []string{"namespace", "policy", "outcome", "route"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "jobmesh_quit_duration_seconds",
			Help:    "How long one attempt took, live read included.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"outcome", "route"}),
		reaped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "jobmesh_reaped_pods_total",
			Help: "Pods whose proxy was asked to quit and then seen terminated, by how the pod ended.",
		}, []string{"namespace", "policy", "result"}),
		finishToQuit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "jobmesh_app_finished_to_quit_seconds",
			Help:    "From the end of the last app container to the proxy's acceptance of the quit.",
			Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 300, 3600},
		}),
		quitToProxy: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "jobmesh_quit_to_proxy_exit_seconds",
			Help:    "From the first quit that the proxy accepted, or may have, to the proxy being seen terminated.",
			Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 300},
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "jobmesh_quits_in_flight",
			Help: "Attempts to make a proxy quit that are under way. At its cap, --max-concurrent-quits, pods wait in line.",
		}),
		gauges: &gauges{ledger: l},
		buildInfoOnce: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "jobmesh_build_info",
			Help:        "What this operator was built from; always 1.",
			ConstLabels: prometheus.Labels{"version": version.Version, "revision": version.Commit(), "go_version": runtime.Version()},
		}),
	}
	r.buildInfoOnce.Set(1)
	for _, c := range []prometheus.Collector{r.attempts, r.duration, r.reaped, r.finishToQuit, r.quitToProxy, r.inFlight, r.gauges, r.buildInfoOnce} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// QuitBegins counts an attempt as under way, until ends is called.
func (r *Recorder) QuitBegins() (ends func()) {
	r.inFlight.Inc()
	return r.inFlight.Dec
}

// QuitAttempted counts one attempt and its duration.
func (r *Recorder) QuitAttempted(namespace, policy string, outcome quit.Outcome, route quit.Route, took time.Duration) {
	r.attempts.WithLabelValues(namespace, policy, string(outcome), string(route)).Inc()
	r.duration.WithLabelValues(string(outcome), string(route)).Observe(took.Seconds())
}

// QuitAccepted tells how long after the last app container's end a proxy accepted.
func (r *Recorder) QuitAccepted(sinceAppFinished time.Duration) {
	r.finishToQuit.Observe(max(0, sinceAppFinished.Seconds()))
}

// PodReaped counts a pod whose proxy was asked and is terminated.
func (r *Recorder) PodReaped(namespace, policy, result string) {
	r.reaped.WithLabelValues(namespace, policy, result).Inc()
}

// ProxyExited tells how long after it was first asked a proxy was seen terminated.
func (r *Recorder) ProxyExited(sinceAsked time.Duration) {
	r.quitToProxy.Observe(max(0, sinceAsked.Seconds()))
}

// PolicyGone drops the series of a policy that was deleted, so that ever new names cost nothing.
func (r *Recorder) PolicyGone(namespace, policy string) {
	labels := prometheus.Labels{"namespace": namespace, "policy": policy}
	r.attempts.DeletePartialMatch(labels)
	r.reaped.DeletePartialMatch(labels)
}

// NamespaceGone drops the series of a namespace that holds neither pods of Jobs nor policies any more.
func (r *Recorder) NamespaceGone(namespace string) {
	labels := prometheus.Labels{"namespace": namespace}
	r.attempts.DeletePartialMatch(labels)
	r.reaped.DeletePartialMatch(labels)
}
