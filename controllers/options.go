// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What both controllers set alike, and why.

package controllers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// reconcileBound is a safety net far above the longest attempt (60 s).
	reconcileBound = 90 * time.Second
	// minRetry and maxRetry bound the delay after an error of the API server. The default grows to 1000 s.
	minRetry = 250 * time.Millisecond
	maxRetry = time.Minute
	// syncBound is how long the first lists may take. Where the API server is away or slow, ending and starting anew would only
	// lose what has been read; the operator is not ready meanwhile, and the client logs why.
	syncBound = time.Hour
)

func controllerOptions(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   reconcileBound,
		CacheSyncTimeout:        syncBound,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
		// A replica that waits for the lease keeps its cache warm, so that a failover costs no list of all pods.
		EnableWarmup: new(true),
	}
}
