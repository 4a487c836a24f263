// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file says what is measured. Times are seconds where a name does not say otherwise.

package main

import (
	"math"
	"slices"
	"time"
)

// results is everything that was measured in one run.
type results struct {
	Date    time.Time
	Machine machine
	// Load is the machine's load average before the first Job.
	Load      float64
	Singles   []single
	Bursts    []burst
	Attempts  []attempt
	Timelines []timeline
	// Metric is what jobmesh_quit_duration_seconds says of all attempts that were accepted.
	Metric histogram
}

// single is one Job with one pod.
type single struct {
	Kind  string
	Round int
	// Both begin when the app container is first seen terminated.
	PodFinished, JobFinished float64
	// Whole is the time from the Job's creation to its end.
	Whole float64
}

// burst is one Job with many pods at once.
type burst struct {
	Kind  string
	Round int
	Pods  int
	// JobFinished begins at the first app's end, AfterLast at the last's, Whole at the Job's creation.
	JobFinished, AfterLast, Whole float64
	// Attempts are the operator's, by outcome; Reaped are its pods.
	Attempts map[string]int
	Reaped   int
}

// attempt is one that the operator's log tells of: the proxy was asked.
type attempt struct {
	Namespace, Pod, Protocol string
	// Outcome is accepted, or unknown where the stream ended without an answer.
	Outcome string
	// Burst tells it from an attempt on a pod that was alone.
	Burst bool
	// At is when it had ended.
	At time.Time
	// Duration is the whole attempt. Decision came before it.
	Decision, Duration, LiveRead, Connect, Upgrade, Exchange float64
}

// timeline is where the time of one Job went, from the end of the app's process to the Job's.
type timeline struct {
	Kind string
	// Told is how long until the kubelet had written the app's end into the pod's status, ProxyExit how long from then until the
	// proxy's process ended, Finished from then until the kubelet had written the pod's end, Job from then until the Job
	// controller had written the Job's.
	Told, ProxyExit, Finished, Job float64
	// Delivery is the time from the kubelet's write to the operator's looking at the pod, Quit from the end of the attempt to the
	// end of the proxy's process. Only JobMesh's kind has them.
	Delivery, Quit float64
}

// histogram is a count and a sum.
type histogram struct {
	Count int
	Sum   float64
}

// spread is a distribution.
type spread struct {
	N                        int
	Min, Q1, Median, Q3, Max float64
	P95                      float64
	All                      []float64
}

func spreadOf(values []float64) spread {
	all := slices.Sorted(slices.Values(values))
	if len(all) == 0 {
		return spread{}
	}
	return spread{
		N: len(all), Min: all[0], Q1: quantile(all, .25), Median: quantile(all, .5), Q3: quantile(all, .75),
		Max: all[len(all)-1], P95: quantile(all, .95), All: values,
	}
}

// quantile interpolates between the two nearest of the sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// pick collects one figure of those that belong to a kind.
func pick[T any](all []T, keep func(T) bool, figure func(T) float64) spread {
	var values []float64
	for _, one := range all {
		if keep(one) {
			values = append(values, figure(one))
		}
	}
	return spreadOf(values)
}
