// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The gauges: computed from the ledger at each scrape, so that they can neither drift nor outlive what they count.

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/ledger"
)

var (
	jobPodsDesc = prometheus.NewDesc("jobmesh_job_pods",
		"Unfinished pods of Jobs, by how the proxy was injected.", []string{"namespace", "injection"}, nil)
	stuckPodsDesc = prometheus.NewDesc("jobmesh_stuck_pods",
		"Pods whose work is done while their proxy runs, by what is done about it.", []string{"namespace", "policy", "verdict", "reason"}, nil)
	oldestStuckDesc = prometheus.NewDesc("jobmesh_oldest_stuck_pod_timestamp_seconds",
		"When the last app container finished, of the pod that is stuck the longest.", []string{"namespace"}, nil)
	policiesDesc = prometheus.NewDesc("jobmesh_policies",
		"JobMeshPolicies, by mode.", []string{"namespace", "mode"}, nil)
)

type gauges struct{ ledger *ledger.Ledger }

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobPodsDesc, stuckPodsDesc, oldestStuckDesc, policiesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	type injectionKey struct{ namespace, injection string }
	type stuckKey struct{ namespace, policy, verdict, reason string }
	type policyKey struct{ namespace, mode string }
	jobPods, stuck, policies := map[injectionKey]int{}, map[stuckKey]int{}, map[policyKey]int{}
	oldest := map[string]time.Time{}

	g.ledger.Each(func(pod types.NamespacedName, r *ledger.Record) {
		jobPods[injectionKey{pod.Namespace, string(r.Injection)}]++
		if !r.Stuck {
			return
		}
		stuck[stuckKey{pod.Namespace, r.Policy, string(r.Verdict), string(r.Reason)}]++
		if first, ok := oldest[pod.Namespace]; !r.AppFinishedAt.IsZero() && (!ok || r.AppFinishedAt.Before(first)) {
			oldest[pod.Namespace] = r.AppFinishedAt
		}
	})
	g.ledger.EachPolicy(func(policy types.NamespacedName, mode string) {
		policies[policyKey{policy.Namespace, mode}]++
	})

	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for k, n := range jobPods {
		gauge(jobPodsDesc, float64(n), k.namespace, k.injection)
	}
	for k, n := range stuck {
		gauge(stuckPodsDesc, float64(n), k.namespace, k.policy, k.verdict, k.reason)
	}
	for namespace, t := range oldest {
		gauge(oldestStuckDesc, float64(t.Unix()), namespace)
	}
	for k, n := range policies {
		gauge(policiesDesc, float64(n), k.namespace, k.mode)
	}
}
