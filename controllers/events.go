// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Events in bounds: what people can read, and an API server can take in a storm.

package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// eventsPerSecond and eventBurst bound the events of one type, Normal or Warning: neither drowns the other. The recorder has no
	// bound of its own: it makes a request for each event at once, and ten thousand of them would keep the API server from serving the
	// quits. What they tell is in the log and the metrics too.
	eventsPerSecond = 5
	eventBurst      = 50
)

// BoundedEvents passes on events as long as they are few.
type BoundedEvents struct {
	recorder        events.EventRecorder
	normal, warning flowcontrol.PassiveRateLimiter
}

// NewBoundedEvents bounds what recorder is given.
func NewBoundedEvents(recorder events.EventRecorder) *BoundedEvents {
	return &BoundedEvents{
		recorder: recorder,
		normal:   flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventBurst),
		warning:  flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventBurst),
	}
}

// Eventf implements events.EventRecorder.
func (b *BoundedEvents) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	limit := b.normal
	if eventType == corev1.EventTypeWarning {
		limit = b.warning
	}
	if limit.TryAccept() {
		b.recorder.Eventf(regarding, related, eventType, reason, action, note, args...)
	}
}
