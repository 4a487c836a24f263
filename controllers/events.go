// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Events in bounds: what people can read, and an API server can take in a storm.

package controllers

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// eventsPerSecond bounds the events of one type, Normal or Warning: neither drowns the other. The recorder has no bound of its own: it
	// makes a request for each event at once, and ten thousand of them would keep the API server from serving the quits.
	eventsPerSecond = 5
	eventsAtOnce    = 5
	// eventsWaiting is how many events of one type may wait for their turn. Those beyond are dropped: the log and the metrics tell the
	// same.
	eventsWaiting = 200
)

// BoundedEvents passes on events as fast as is good for all. It is a manager.Runnable.
type BoundedEvents struct {
	recorder events.EventRecorder
	waiting  map[string]chan func() // by type
}

// NewBoundedEvents bounds what recorder is given.
func NewBoundedEvents(recorder events.EventRecorder) *BoundedEvents {
	return &BoundedEvents{recorder: recorder, waiting: map[string]chan func(){
		corev1.EventTypeNormal: make(chan func(), eventsWaiting), corev1.EventTypeWarning: make(chan func(), eventsWaiting),
	}}
}

// Eventf implements events.EventRecorder.
func (b *BoundedEvents) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	select {
	case b.waiting[eventType] <- func() { b.recorder.Eventf(regarding, related, eventType, reason, action, note, args...) }:
	default:
	}
}

// Start passes events on until ctx ends.
func (b *BoundedEvents) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, waiting := range b.waiting {
		all.Go(func() {
			limit := flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsAtOnce)
			for {
				select {
				case <-ctx.Done():
					return
				case tell := <-waiting:
					if limit.Wait(ctx) == nil {
						tell()
					}
				}
			}
		})
	}
	all.Wait()
	return nil
}
