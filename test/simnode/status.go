// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a node reports of its Pods: the status as a kubelet writes it, and the writers.

package simnode

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writeStatuses is one of the writers.
func (f *Fleet) writeStatuses() {
	for {
		p, shutdown := f.queue.Get()
		if shutdown {
			return
		}
		if err := p.report(f.ctx); err != nil && f.ctx.Err() == nil {
			f.log.V(1).Info("A status write failed and is tried again", "pod", p.key, "error", err.Error())
			f.queue.AddRateLimited(p)
		} else {
			f.queue.Forget(p)
		}
		f.queue.Done(p)
	}
}

// report writes the status, and removes a deleted Pod of which nothing runs any more.
func (p *pod) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if p.node.offline.Load() {
		return nil // reported when the node is back
	}
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return nil
	}
	object, status, changes := p.object, p.status(), p.changes
	_, appsFinished := p.appsFinished()
	remove := p.deleting && p.finished
	p.mu.Unlock()

	pods := p.fleet.client.CoreV1().Pods(object.Namespace)
	// The UID keeps this from reaching a later Pod of the same name.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	p.fleet.counters.writes.Add(1)
	p.noteReport(changes, status.Phase, appsFinished)
	if !remove {
		return nil
	}
	err = pods.Delete(ctx, object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(object.UID)),
	})
	if gone(err) {
		return nil
	}
	return err
}

// gone reports whether the Pod is no more: the name is free or belongs to another.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// status is the whole status. The caller holds mu.
func (p *pod) status() corev1.PodStatus {
	s := corev1.PodStatus{
		Phase:     p.phase(),
		StartTime: &metav1.Time{Time: p.startTime},
		HostIP:    nodeIP,
		HostIPs:   []corev1.HostIP{{IP: nodeIP}},
		QOSClass:  p.object.Status.QOSClass,
	}
	if p.finished && p.stop != nil {
		s.Reason, s.Message = p.stop.reason, p.stop.message
	}
	if p.ip != "" {
		s.PodIP, s.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	for _, c := range p.init {
		s.InitContainerStatuses = append(s.InitContainerStatuses, c.status(p))
	}
	for _, c := range p.apps {
		s.ContainerStatuses = append(s.ContainerStatuses, c.status(p))
	}
	s.Conditions = p.conditions(s.Phase)
	return s
}

// phase follows the kubelet: Pending until the init containers are done and an app container has started, Running
// until nothing runs any more.
func (p *pod) phase() corev1.PodPhase {
	if p.finished {
		if p.stop != nil && p.stop.reason != "" {
			return corev1.PodFailed
		}
		for _, c := range p.apps {
			if c.state != terminated || c.exitCode != 0 {
				return corev1.PodFailed
			}
		}
		return corev1.PodSucceeded
	}
	if !p.initDone {
		return corev1.PodPending
	}
	for _, c := range p.apps {
		if c.attempts == 0 {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

func (p *pod) conditions(phase corev1.PodPhase) []corev1.PodCondition {
	ready := phase == corev1.PodRunning
	for _, c := range p.apps {
		ready = ready && c.state == running
	}
	notReady := "ContainersNotReady"
	switch phase {
	case corev1.PodSucceeded:
		notReady = "PodCompleted"
	case corev1.PodFailed:
		notReady = "PodFailed"
	}
	conditions := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, !p.finished, ""),
		condition(corev1.PodInitialized, p.initDone, "ContainersNotInitialized"),
		condition(corev1.PodReady, ready, notReady),
		condition(corev1.ContainersReady, ready, notReady),
	}
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Now()
		conditions[i].ObservedGeneration = p.object.Generation
		for _, old := range p.object.Status.Conditions {
			if old.Type == conditions[i].Type && old.Status == conditions[i].Status {
				conditions[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return conditions
}

func condition(kind corev1.PodConditionType, holds bool, otherwise string) corev1.PodCondition {
	if holds {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: otherwise}
}

func (c *container) status(p *pod) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name:         c.spec.Name,
		Image:        c.spec.Image,
		ImageID:      c.spec.Image + "@sha256:simulated",
		ContainerID:  c.id,
		RestartCount: int32(max(c.attempts-1, 0)),
		Ready:        c.state == running || c.init && !c.sidecar && c.state == terminated && c.exitCode == 0,
		Started:      new(c.state == running),
	}
	if c.last != nil {
		s.LastTerminationState.Terminated = c.last
	}
	switch {
	case c.state == running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: c.startedAt}}
	case c.state == terminated && c.backingOff:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		s.LastTerminationState.Terminated = c.terminatedState()
	case c.state == terminated:
		s.State.Terminated = c.terminatedState()
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.waitingReason(p)}
	}
	return s
}

func (c *container) waitingReason(p *pod) string {
	switch {
	case len(p.init) > 0 && !p.initDone && (!c.init || c.startAt.IsZero()):
		return "PodInitializing"
	case c.script.Waiting != "":
		return c.script.Waiting
	default:
		return "ContainerCreating"
	}
}

func (c *container) terminatedState() *corev1.ContainerStateTerminated {
	reason := c.script.Reason
	switch {
	case reason != "":
	case c.exitCode == 0:
		reason = "Completed"
	default:
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.exitCode, Reason: reason, ContainerID: c.id,
		StartedAt: metav1.Time{Time: c.startedAt}, FinishedAt: metav1.Time{Time: c.finishedAt},
	}
}
