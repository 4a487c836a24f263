// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file reads what the operator says of itself: its metrics and its log.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/test/e2e/deploy"
)

func (b *bench) replicas(ctx context.Context) ([]corev1.Pod, error) {
	list, err := b.clientset.CoreV1().Pods(deploy.Namespace).List(ctx, metav1.ListOptions{LabelSelector: deploy.Labels})
	return list.Items, err
}

// counts is what the replicas' metrics say in sum.
type counts struct {
	attempts map[string]int // in JobMesh's namespace, by outcome
	reaped   int
	accepted histogram
	build    string
}

// scrape reads the metrics of all replicas.
func (b *bench) scrape(ctx context.Context) (counts, error) {
	sum := counts{attempts: map[string]int{}}
	pods, err := b.replicas(ctx)
	if err != nil {
		return sum, err
	}
	for _, pod := range pods {
		text, err := b.clientset.CoreV1().RESTClient().Get().Namespace(deploy.Namespace).Resource("pods").
			Name(pod.Name + ":8080").SubResource("proxy").Suffix("metrics").DoRaw(ctx)
		if err != nil {
			return sum, fmt.Errorf("reading the operator's metrics: %w", err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return sum, fmt.Errorf("parsing the operator's metrics: %w", err)
		}
		for _, m := range families["jobmesh_quit_attempts_total"].GetMetric() {
			if labelOf(m, "namespace") == b.namespaces[jobMesh] {
				sum.attempts[labelOf(m, "outcome")] += int(m.GetCounter().GetValue())
			}
		}
		for _, m := range families["jobmesh_reaped_pods_total"].GetMetric() {
			if labelOf(m, "namespace") == b.namespaces[jobMesh] {
				sum.reaped += int(m.GetCounter().GetValue())
			}
		}
		for _, m := range families["jobmesh_quit_duration_seconds"].GetMetric() {
			if labelOf(m, "outcome") == "accepted" {
				sum.accepted.Count += int(m.GetHistogram().GetSampleCount())
				sum.accepted.Sum += m.GetHistogram().GetSampleSum()
			}
		}
		for _, m := range families["jobmesh_build_info"].GetMetric() {
			sum.build = labelOf(m, "version")
		}
	}
	return sum, nil
}

func labelOf(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// account adds to a burst what the operator counted since. It hears of the last pod's end when the bench does, not before.
func (b *bench) account(ctx context.Context, before counts, one *burst) error {
	for range 20 {
		after, err := b.scrape(ctx)
		if err != nil {
			return err
		}
		one.Reaped, one.Attempts = after.reaped-before.reaped, map[string]int{}
		for outcome, n := range after.attempts {
			if n -= before.attempts[outcome]; n > 0 {
				one.Attempts[outcome] = n
			}
		}
		if one.Reaped >= one.Pods {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	return nil
}

// entry is a line of the operator's log.
type entry struct {
	Msg, Namespace, Name, Protocol, Outcome                  string
	Decision, Duration, LiveRead, Connect, Upgrade, Exchange string
}

// harvest reads what the logs tell of all rounds so far.
func (b *bench) harvest(ctx context.Context) error {
	sum, err := b.scrape(ctx)
	if err != nil {
		return err
	}
	b.Metric, b.Machine.JobMesh = sum.accepted, sum.build
	pods, err := b.replicas(ctx)
	if err != nil {
		return err
	}
	b.Attempts, b.Timelines = nil, nil
	for _, pod := range pods {
		log, err := b.clientset.CoreV1().Pods(deploy.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Timestamps: true}).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("reading the operator's log: %w", err)
		}
		for line := range strings.Lines(string(log)) {
			if one, ok := b.attemptOf(line); ok {
				b.Attempts = append(b.Attempts, one)
			}
		}
	}
	return b.readTimelines()
}

// attemptOf reads one line of the log: the runtime's timestamp and the operator's JSON. Attempts of the round that does not count are
// left out.
func (b *bench) attemptOf(line string) (attempt, bool) {
	stamp, text, _ := strings.Cut(line, " ")
	var e entry
	if json.Unmarshal([]byte(text), &e) != nil || e.Msg != "Asked the proxy to quit" || e.Namespace != b.namespaces[jobMesh] {
		return attempt{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return attempt{}, false
	}
	_, alone := b.alone[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]
	crowd := strings.HasPrefix(e.Name, "burst-")
	return attempt{
		Namespace: e.Namespace, Pod: e.Name, Protocol: e.Protocol, Outcome: e.Outcome, Burst: crowd, At: at,
		Decision: seconds(e.Decision), Duration: seconds(e.Duration), LiveRead: seconds(e.LiveRead),
		Connect: seconds(e.Connect), Upgrade: seconds(e.Upgrade), Exchange: seconds(e.Exchange),
	}, alone || crowd
}

func seconds(duration string) float64 {
	d, _ := time.ParseDuration(duration)
	return d.Seconds()
}
