// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A source that lets the rest of the operator put a key into a controller's queue.

package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// wakeup remembers a controller's queue once that controller has started. Keys that come earlier are dropped: at its start a
// controller looks at everything anyway.
type wakeup struct {
	mu    sync.RWMutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// source hands the controller's queue over; it has no events of its own.
func (w *wakeup) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = queue
		return nil
	})
}

func (w *wakeup) add(request reconcile.Request) { w.addAfter(request, 0) }

func (w *wakeup) addAfter(request reconcile.Request, after time.Duration) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.queue != nil {
		w.queue.AddAfter(request, after)
	}
}
