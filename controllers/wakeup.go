// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Sources that let the rest of the operator put a key into a controller's queue.

package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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

// eachEvent calls f for each object that comes, changes or goes. Who wants something looked at wakes it up.
func eachEvent(f func(context.Context, client.Object)) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queue) { f(ctx, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queue) { f(ctx, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) { f(ctx, e.Object) },
	}
}
