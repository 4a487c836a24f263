// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what became known of the Jobs, and when: from the status of their pods, from their own, and from the
// operator's log. The times are those at which the demo heard of a fact, because the times in a status and in the log are whole
// seconds.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/explain"
	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// kind is what sort of thing happened.
type kind int

const (
	other kind = iota // the demo itself did it
	appRestarted
	appFinished
	quitAsked
	proxyExited
	jobEnded
)

// fact is one thing that happened to a Job.
type fact struct {
	at     time.Time
	job    string // NAMESPACE/NAME
	kind   kind
	text   string
	source string
}

// view is what is known of one Job.
type view struct {
	pod       *corev1.Pod
	end       batchv1.JobConditionType // "" while it has not ended
	restarts  int32                    // of the app
	explained map[verdict.Reason]string
	first     map[kind]time.Time
}

// chronicle is safe for concurrent use.
type chronicle struct {
	news chan struct{} // holds one token where there may be something new

	mu    sync.Mutex
	facts []fact
	jobs  map[string]*view
	rules *explain.Rules
}

func newChronicle() *chronicle {
	c := &chronicle{news: make(chan struct{}, 1), jobs: map[string]*view{}}
	c.govern(nil)
	return c
}

// govern takes in the policies that there are now. The operator's default mode is its own default.
func (c *chronicle) govern(policies []v1alpha1.JobMeshPolicy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules = explain.NewRules(policy.Defaults{Mode: operator.Defaults().DefaultMode}, policies)
	for _, v := range c.jobs {
		c.explain(v)
	}
}

// watch follows pods and Jobs until ctx ends.
func (c *chronicle) watch(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	for informer, observe := range map[cache.SharedIndexInformer]func(any){
		factory.Core().V1().Pods().Informer():  func(object any) { c.observePod(object.(*corev1.Pod)) },
		factory.Batch().V1().Jobs().Informer(): func(object any) { c.observeJob(object.(*batchv1.Job)) },
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: observe, UpdateFunc: func(_, now any) { observe(now) }})
		if err != nil {
			return err
		}
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return context.Cause(ctx)
}

func (c *chronicle) observePod(pod *corev1.Pod) {
	owner := verdict.JobOf(pod)
	if owner == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := pod.Namespace + "/" + owner.Name
	v := c.view(key)
	v.pod = pod
	c.explain(v)
	const source = "pod's status"
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == istio.ProxyContainer {
			continue
		}
		if last := status.LastTerminationState.Terminated; last != nil && status.RestartCount > v.restarts {
			v.restarts = status.RestartCount
			c.add(fact{job: key, kind: appRestarted, source: source,
				text: fmt.Sprintf("app failed (exit code %d) and was started again: restart %d", last.ExitCode, status.RestartCount)})
		}
		end := status.State.Terminated
		if end != nil && (end.ExitCode == 0 || pod.Spec.RestartPolicy == corev1.RestartPolicyNever) {
			c.once(v, fact{job: key, kind: appFinished, source: source, text: fmt.Sprintf("app finished, exit code %d", end.ExitCode)})
		}
	}
	if proxy := proxyStatus(pod); proxy != nil && proxy.State.Terminated != nil {
		c.once(v, fact{job: key, kind: proxyExited, source: source, text: fmt.Sprintf("istio-proxy exited, exit code %d", proxy.State.Terminated.ExitCode)})
	}
}

func (c *chronicle) observeJob(job *batchv1.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := job.Namespace + "/" + job.Name
	v := c.view(key)
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			v.end = condition.Type
			c.once(v, fact{job: key, kind: jobEnded, source: "Job's status", text: "Job " + string(condition.Type)})
		}
	}
}

// hear reads a line of the operator's log.
func (c *chronicle) hear(line []byte) {
	var entry struct {
		Message   string `json:"msg"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Outcome   string `json:"outcome"`
		Duration  string `json:"duration"`
	}
	if json.Unmarshal(line, &entry) != nil || entry.Message != "Asked the proxy to quit" {
		return
	}
	took, _ := time.ParseDuration(entry.Duration)
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, v := range c.jobs {
		if v.pod != nil && v.pod.Namespace == entry.Namespace && v.pod.Name == entry.Name {
			c.once(v, fact{job: key, kind: quitAsked, source: "operator's log",
				text: fmt.Sprintf("istio-proxy asked to quit: %s (in %d ms)", entry.Outcome, took.Milliseconds())})
		}
	}
}

// view finds or begins what is known of a Job. The caller holds mu, as for all below.
func (c *chronicle) view(key string) *view {
	if c.jobs[key] == nil {
		c.jobs[key] = &view{explained: map[verdict.Reason]string{}, first: map[kind]time.Time{}}
	}
	return c.jobs[key]
}

// explain keeps the first line of each reason.
func (c *chronicle) explain(v *view) {
	if v.pod == nil {
		return
	}
	e := c.rules.Explain(v.pod, nil, time.Now())
	if _, known := v.explained[e.Reason]; !known {
		v.explained[e.Reason] = e.Line()
	}
}

func (c *chronicle) once(v *view, f fact) {
	if _, known := v.first[f.kind]; !known {
		v.first[f.kind] = c.add(f)
	}
}

func (c *chronicle) add(f fact) time.Time {
	f.at = time.Now()
	c.facts = append(c.facts, f)
	select {
	case c.news <- struct{}{}:
	default:
	}
	return f.at
}

// since returns the facts from the n-th on.
func (c *chronicle) since(n int) []fact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]fact{}, c.facts[n:]...)
}

// when tells when a thing happened first to a Job.
func (c *chronicle) when(job string, k kind) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.view(job).first[k]
	return at, ok
}

// read looks at what is known of a Job.
func (c *chronicle) read(job string, look func(*view)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look(c.view(job))
}

// proxyStatus finds the proxy, whichever way it was injected.
func proxyStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == istio.ProxyContainer {
				return &statuses[i]
			}
		}
	}
	return nil
}
