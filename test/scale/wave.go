// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file makes Jobs, wave by wave, and follows their pods.

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/test/simnode"
)

// podFile is the template of every Job: a pod as Istio's injector leaves it, because its size is part of the load.
//
//go:embed pod.yaml
var podFile []byte

func podTemplate() (corev1.PodTemplateSpec, error) {
	var template corev1.PodTemplateSpec
	err := yaml.UnmarshalStrict(podFile, &template)
	return template, err
}

// wave is a set of Jobs whose apps end together.
type wave struct {
	rig  *rig
	name string // begins the names of its Jobs, and so of its pods
	pods int
	// stuck gets each pod once its app has ended and the API server knows; nobody has to take them.
	stuck chan place
}

// place is where a pod is.
type place struct{ namespace, pod, node string }

// launch makes the Jobs of a wave, one on each of the given nodes, whose parallelism makes up the number of pods. The template
// names the node, so that the scheduler is no part of it. It returns when every pod runs and has said so.
func (r *rig) launch(ctx context.Context, name string, pods int, nodes []string) (*wave, error) {
	r.waves++
	w := &wave{rig: r, name: fmt.Sprintf("%s%d-", name, r.waves), pods: pods, stuck: make(chan place, pods)}
	template, err := podTemplate()
	if err != nil {
		return nil, err
	}
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Gate: w.name}}}.Annotate(&template)
	for i, node := range nodes {
		parallelism := int32(pods / len(nodes))
		if i < pods%len(nodes) {
			parallelism++
		}
		if parallelism == 0 {
			continue
		}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: team(i), Name: fmt.Sprintf("%s%d", w.name, i)},
			Spec: batchv1.JobSpec{
				Parallelism: &parallelism, Completions: &parallelism, BackoffLimit: new(int32(0)), Template: *template.DeepCopy(),
			},
		}
		job.Spec.Template.Spec.NodeName = node
		if err := r.admin.Create(ctx, job); err != nil {
			return nil, err
		}
	}
	err = r.eventually(ctx, "the pods of "+w.name+" to run", func() (bool, error) {
		up := w.count(func(p pod) bool { return p.Phase == corev1.PodRunning && p.Reported })
		return up == pods, fmt.Errorf("%d of %d do", up, pods)
	})
	if err == nil {
		r.say("%d pods run (%s)", pods, w.name)
	}
	return w, err
}

// pod is a pod as its node sees it.
type pod struct {
	simnode.PodState
	namespace, name string
}

// owns tells whether a Job or a pod is one of the wave's.
func (w *wave) owns(name string) bool { return strings.HasPrefix(name, w.name) }

// all returns the wave's pods.
func (w *wave) all() []pod {
	var all []pod
	w.rig.fleet.Each(func(namespace, name string, s simnode.PodState) {
		if w.owns(name) {
			all = append(all, pod{s, namespace, name})
		}
	})
	return all
}

func (w *wave) count(holds func(pod) bool) (n int) {
	for _, p := range w.all() {
		if holds(p) {
			n++
		}
	}
	return n
}

// open lets the apps end within a time, and says when it did.
func (w *wave) open(within time.Duration) (time.Time, error) {
	began := time.Now()
	if n := w.rig.fleet.OpenGate(w.name, within); n != w.pods {
		return began, fmt.Errorf("%d of %d apps were there to be let go", n, w.pods)
	}
	w.rig.say("the apps of %d pods end within %s (%s)", w.pods, within, w.name)
	return began, nil
}

func (w *wave) awaitStuck(ctx context.Context) error {
	err := w.rig.eventually(ctx, "the pods of "+w.name+" to be stuck", func() (bool, error) {
		n := w.count(func(p pod) bool { return !p.AppsReportedAt.IsZero() && p.Reported })
		return n == w.pods, fmt.Errorf("%d of %d are", n, w.pods)
	})
	if err == nil {
		w.rig.say("%d pods are stuck, and the API server knows (%s)", w.pods, w.name)
	}
	return err
}

// awaitReaped waits until every proxy has exited, and returns when the last one did.
func (w *wave) awaitReaped(ctx context.Context) (last time.Time, err error) {
	err = w.rig.eventually(ctx, "the proxies of "+w.name+" to exit", func() (bool, error) {
		n := w.count(func(p pod) bool { return p.ProxyExited })
		return n == w.pods, fmt.Errorf("%d of %d have", n, w.pods)
	})
	for _, p := range w.all() {
		if p.ProxyExitedAt.After(last) {
			last = p.ProxyExitedAt
		}
	}
	if err == nil {
		w.rig.say("%d proxies have exited (%s)", w.pods, w.name)
	}
	return last, err
}

// awaitComplete waits until the Job controller, too, has seen the end of every Job, and returns how many pods did not succeed.
func (w *wave) awaitComplete(ctx context.Context) (lost int, err error) {
	err = w.rig.eventually(ctx, "the Jobs of "+w.name+" to be complete", func() (bool, error) {
		var jobs batchv1.JobList
		if err := w.rig.admin.List(ctx, &jobs); err != nil {
			return false, err
		}
		lost = w.pods
		for _, job := range jobs.Items {
			if w.owns(job.Name) && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
			}) {
				lost -= int(job.Status.Succeeded)
			}
		}
		return lost == 0, fmt.Errorf("%d of %d pods are missing", lost, w.pods)
	})
	return lost, err
}

// figures of a wave, from its nodes' clocks.
func (w *wave) exits() (moments []time.Time) {
	for _, p := range w.all() {
		moments = append(moments, p.ProxyExitedAt)
	}
	return moments
}

// finishes are when the API server knew of the pods' ends.
func (w *wave) finishes() (moments []time.Time) {
	for _, p := range w.all() {
		moments = append(moments, p.FinishedAt)
	}
	return moments
}

// waits are the times from an app's end to the quit, and from the report of the end to the quit, in seconds, sorted.
func waits(pods []pod) (fromEnd, fromReport []float64) {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p pod) bool { return p.FirstQuitAt.IsZero() })
	return sortedBy(pods, func(p pod) float64 { return p.FirstQuitAt.Sub(p.AppsFinishedAt).Seconds() }),
		sortedBy(pods, func(p pod) float64 { return p.FirstQuitAt.Sub(p.AppsReportedAt).Seconds() })
}

// nodes names all nodes of the fleet, or all but the last few.
func (r *rig) nodes(s size, butLast int) (names []string) {
	for i := range s.Nodes - butLast {
		names = append(names, r.fleet.Node(i).Name())
	}
	return names
}

// inParallel calls work for each number below n, some at a time, and returns the first few errors.
func inParallel(ctx context.Context, n, workers int, work func(i int) error) error {
	var mu sync.Mutex
	var failed []error
	next := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				if err := work(i); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		mu.Lock()
		stop := len(failed) > 0
		mu.Unlock()
		if stop || ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(append(failed[:min(len(failed), 3)], context.Cause(ctx))...)
}
