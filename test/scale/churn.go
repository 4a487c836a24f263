// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The churn: Jobs come, finish, are reaped and are deleted, for as long as it takes to see a leak.

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/test/simnode"
)

const churnAbout = `Jobs of one pod come at an even rate. An app runs for one to three seconds, the operator reaps the pod, and the Job controller deletes the Job
ten seconds later. Every tenth Job is deleted two seconds after its creation, in whatever state it is. The operator's heap is looked at after a forced
collection; the line through the second half of these looks says whether it grows.`

const (
	churnTTL = 10 // seconds from a Job's end to its deletion
	// cutShortEvery is how often a Job is deleted early.
	cutShortEvery = 10
	// heapLooks is how many looks at the heap there are.
	heapLooks = 120
)

// churning is a churn under way.
type churning struct {
	rig     *rig
	created int
	cut     sync.WaitGroup

	mu    sync.Mutex
	waits map[string]float64 // app's end → quit, by pod, in seconds
}

func churn(ctx context.Context, r *rig, s size) ([]figure, error) {
	level, err := r.startIdleOperator(ctx)
	if err != nil {
		return nil, err
	}
	c := &churning{rig: r, waits: map[string]float64{}}
	began := time.Now()
	end := began.Add(s.Churn)
	processorBefore, err := r.running.processorTime()
	if err != nil {
		return nil, err
	}

	var failed error
	var makers sync.WaitGroup
	makers.Go(func() { failed = c.makeJobs(ctx, s, end) })
	minutes, heap, lookErr := c.lookAtHeap(ctx, s, began, end)
	makers.Wait()
	if err := errors.Join(failed, lookErr); err != nil {
		return nil, err
	}
	processor, err := r.running.processorTime()
	if err != nil {
		return nil, err
	}
	ended := time.Now()
	left, err := c.awaitGone(ctx)
	if err != nil {
		return nil, err
	}
	back, off, err := r.returns(ctx, level, time.Now())
	if err != nil {
		return nil, err
	}
	peak, err := r.running.memory("VmHWM")
	if err != nil {
		return nil, err
	}
	samples := r.running.since(began)
	samples = slices.DeleteFunc(samples, func(s sample) bool { return s.at.After(ended) })
	half := len(heap) / 2
	l := fit(minutes[half:], heap[half:])
	span := minutes[len(minutes)-1] - minutes[half]
	waits := sortedBy(mapValues(c.waits), func(v float64) float64 { return v })
	final, err := r.running.sample()
	if err != nil {
		return nil, err
	}
	return []figure{
		{"jobs", fmt.Sprintf("Jobs in %s; every tenth was deleted after two seconds", s.Churn), float64(c.created), ""},
		{"reaped", "pods reaped, by the operator's own count", float64(final.reaped), "pods"},
		{"left", "Jobs that were left at the end", float64(left), ""},
		{"premature", "quits that arrived while an app container might still run", float64(r.fleet.Counters().QuitsPremature), ""},
		{"waitMedian", "app's end → quit, median", quantile(waits, .5), "s"},
		{"waitP99", "app's end → quit, 99th percentile", quantile(waits, .99), "s"},
		{"heapMean", fmt.Sprintf("heap after a collection, mean of %d looks in the second half", len(heap)-half), mean(heap[half:]), "MiB"},
		{"heapSlope", fmt.Sprintf("slope of the line through them (95 %% confidence: ± %.3f)", 60*l.margin), 60 * l.slope, "MiB/h"},
		{"heapGrowth", fmt.Sprintf("what the line gains over these %.0f minutes", span), l.slope * span, "MiB"},
		{"rssPeak", "resident memory, peak", peak, "MiB"},
		{"goroutinesExcess", fmt.Sprintf("goroutines above %d × attempts under way + %d, worst of %d samples", goroutinesPerQuit, goroutinesAlways, len(samples)),
			math.Max(0, maxOf(samples, func(s sample) float64 { return float64(s.excess()) })), ""},
		{"processor", "processor time of the operator, of one core", 100 * (processor - processorBefore) / ended.Sub(began).Seconds(), "%"},
		{"backToIdle", "from the last Job's end to goroutines and sockets at the idle level ± 10", back.Seconds(), "s"},
		{"offIdle", "goroutines or sockets off the idle level then", float64(off), ""},
	}, nil
}

// makeJobs makes Jobs at an even rate until the end.
func (c *churning) makeJobs(ctx context.Context, s size, end time.Time) error {
	defer c.cut.Wait()
	ticks := time.NewTicker(time.Duration(float64(time.Second) / s.ChurnRate))
	defer ticks.Stop()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
		}
		job, err := c.newJob(s)
		if err != nil {
			return err
		}
		if err := c.rig.admin.Create(ctx, job); err != nil {
			return err
		}
		c.created++
		if c.created%cutShortEvery == 0 {
			c.cut.Go(func() {
				if sleep(ctx, 2*time.Second) == nil {
					_ = c.rig.clients.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name,
						metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
				}
			})
		}
	}
	return nil
}

func (c *churning) newJob(s size) (*batchv1.Job, error) {
	template, err := podTemplate()
	if err != nil {
		return nil, err
	}
	run := metav1.Duration{Duration: time.Second + rand.N(2*time.Second)}
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Run: run}}}.Annotate(&template)
	template.Spec.NodeName = c.rig.fleet.Node(c.created % s.Nodes).Name()
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: team(c.created), Name: fmt.Sprintf("churn-%d", c.created)},
		Spec:       batchv1.JobSpec{BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(churnTTL)), Template: template},
	}, nil
}

// lookAtHeap looks at the operator's heap again and again until the end, and at the pods in between.
func (c *churning) lookAtHeap(ctx context.Context, s size, began, end time.Time) (minutes, heap []float64, err error) {
	every := s.Churn / heapLooks
	next := began.Add(every)
	told := began
	for time.Now().Before(end) {
		if err := sleep(ctx, min(every, time.Second)); err != nil {
			return nil, nil, err
		}
		c.lookAtPods()
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(every)
		alive, err := c.rig.running.liveHeap()
		if err != nil {
			return nil, nil, err
		}
		minutes, heap = append(minutes, time.Since(began).Minutes()), append(heap, alive)
		if time.Since(told) > s.Churn/15 {
			told = time.Now()
			samples := c.rig.running.since(told.Add(-2 * time.Second))
			if len(samples) > 0 {
				last := samples[len(samples)-1]
				c.rig.say("%d Jobs so far, %d reaped; heap %.2f MiB, resident %.1f MiB, %d goroutines, %d sockets",
					c.created, last.reaped, alive, last.rss, last.goroutines, last.sockets)
			}
		}
	}
	return minutes, heap, nil
}

// lookAtPods remembers how long finished pods waited, before they are deleted.
func (c *churning) lookAtPods() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rig.fleet.Each(func(_, name string, p simnode.PodState) {
		if p.ProxyExited && !p.FirstQuitAt.IsZero() && !p.AppsFinishedAt.IsZero() {
			c.waits[name] = p.FirstQuitAt.Sub(p.AppsFinishedAt).Seconds()
		}
	})
}

// awaitGone waits until every Job has ended and was deleted, for two minutes, and returns how many have not.
func (c *churning) awaitGone(ctx context.Context) (left int, err error) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		c.lookAtPods()
		var jobs batchv1.JobList
		if err := c.rig.admin.List(ctx, &jobs); err != nil {
			return 0, err
		}
		left = 0
		for _, job := range jobs.Items {
			if strings.HasPrefix(job.Name, "churn-") {
				left++
			}
		}
		if left == 0 || time.Now().After(deadline) {
			c.rig.say("%d of %d Jobs are left", left, c.created)
			return left, nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return 0, err
		}
	}
}
