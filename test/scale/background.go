// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The background: a cluster full of pods that are none of the operator's business.

package main

import (
	"context"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const backgroundAbout = `Pods of Deployments that run, and pods of Jobs that finished, all meshed. They are written straight into the API server: their owners are real
ReplicaSets and Jobs, but no node runs them, and the controllers that would make pods of their own are off. The memory of a fresh, idle operator is compared
with and without them, and that of one that was there while they came.`

const (
	// freshStarts is how often a fresh operator is looked at, because its memory differs by a MiB or two from start to start.
	freshStarts = 3
	writers     = 24
	podsPerSet  = 500
)

func background(ctx context.Context, r *rig, s size) ([]figure, error) {
	without, err := r.freshMemory(ctx)
	if err != nil {
		return nil, err
	}
	level, err := r.startIdleOperator(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = r.fill(ctx, s.deploymentPods(), func(i int) (*corev1.Pod, error) { return r.deploymentPod(ctx, i) })
	if err != nil {
		return nil, err
	}
	err = r.fill(ctx, s.finishedJobPods(), func(i int) (*corev1.Pod, error) { return r.finishedPod(ctx, i) })
	if err != nil {
		return nil, err
	}
	r.say("%d pods of Deployments and %d finished pods of Jobs are in the API server, after %.0f s",
		s.deploymentPods(), s.finishedJobPods(), time.Since(began).Seconds())
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	present := r.running.level()
	peak, err := r.running.memory("VmHWM")
	if err != nil {
		return nil, err
	}
	if err := r.stopOperator(); err != nil {
		return nil, err
	}
	with, err := r.freshMemory(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"without", "resident memory of a fresh operator, empty cluster", without, "MiB"},
		{"with", fmt.Sprintf("the same beside %d pods of Deployments and %d finished pods of Jobs", s.deploymentPods(), s.finishedJobPods()), with, "MiB"},
		{"freshChange", "difference", with - without, "MiB"},
		{"before", "resident memory of an operator before they came", level.rss, "MiB"},
		{"after", "the same operator when all were there", present.rss, "MiB"},
		{"runningChange", "difference", present.rss - level.rss, "MiB"},
		{"change", "the larger difference", math.Max(with-without, present.rss-level.rss), "MiB"},
		{"peak", "resident memory, peak while they came", peak, "MiB"},
	}, nil
}

// freshMemory is the resident memory of an operator that has just started and is idle, the median of several.
func (r *rig) freshMemory(ctx context.Context) (float64, error) {
	var all []float64
	for range freshStarts {
		level, err := r.startIdleOperator(ctx)
		if err != nil {
			return 0, err
		}
		if err := r.stopOperator(); err != nil {
			return 0, err
		}
		all = append(all, level.rss)
	}
	return medianOf(all, func(v float64) float64 { return v }), nil
}

// fill creates n pods and gives them their status.
func (r *rig) fill(ctx context.Context, n int, build func(i int) (*corev1.Pod, error)) error {
	// One at a time per set of podsPerSet, because its first one makes the owner.
	return inParallel(ctx, (n+podsPerSet-1)/podsPerSet, writers, func(set int) error {
		for i := set * podsPerSet; i < min(n, (set+1)*podsPerSet); i++ {
			pod, err := build(i)
			if err != nil {
				return err
			}
			status := pod.Status
			created, err := r.clients.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			created.Status = status
			if _, err := r.clients.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) deploymentPod(ctx context.Context, i int) (*corev1.Pod, error) {
	name, namespace := fmt.Sprintf("web-%d", i/podsPerSet), team(i/podsPerSet)
	sets := r.clients.AppsV1().ReplicaSets(namespace)
	owner, err := r.ownerOf(name, i, func() (metav1.Object, error) {
		template, err := podTemplate()
		if err != nil {
			return nil, err
		}
		template.Labels["app"], template.Spec.RestartPolicy = name, corev1.RestartPolicyAlways
		return sets.Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(podsPerSet)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
			},
		}, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, err
	}
	pod, err := unboundPod(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), namespace, fmt.Sprintf("%s-%d", name, i))
	if err != nil {
		return nil, err
	}
	pod.Labels["app"], pod.Spec.RestartPolicy = name, corev1.RestartPolicyAlways
	pod.Status = statusOf(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	return pod, nil
}

func (r *rig) finishedPod(ctx context.Context, i int) (*corev1.Pod, error) {
	name, namespace := fmt.Sprintf("done-%d", i/podsPerSet), team(i/podsPerSet)
	owner, err := r.ownerOf(name, i, func() (metav1.Object, error) {
		template, err := podTemplate()
		if err != nil {
			return nil, err
		}
		return r.clients.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			// The Job controller leaves the Jobs of other managers alone.
			Spec: batchv1.JobSpec{ManagedBy: new("jobmesh.dev/scale"), Template: template},
		}, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, err
	}
	pod, err := unboundPod(owner, batchv1.SchemeGroupVersion.WithKind("Job"), namespace, fmt.Sprintf("%s-%d", name, i))
	if err != nil {
		return nil, err
	}
	pod.Labels[batchv1.JobNameLabel] = name
	now := metav1.Now()
	pod.Status = statusOf(pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: now, FinishedAt: now,
	}})
	return pod, nil
}
