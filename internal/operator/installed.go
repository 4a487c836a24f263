// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Waiting for the CRD: whoever applies everything at once may have the operator start before its CRD is served.

package operator

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

const (
	// lookAgain is how often the API server is asked for the CRD.
	lookAgain = 2 * time.Second
	// sayAgain is how often the log says that the operator still waits.
	sayAgain = time.Minute
)

// whenInstalled adds the controllers as soon as the API server serves JobMeshPolicy. It is a manager.Runnable.
type whenInstalled struct {
	manager ctrl.Manager
	add     func() error
	done    atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: replicas that wait for the lease fill their caches too.
func (w *whenInstalled) NeedLeaderElection() bool { return false }

// Start waits, and adds the controllers.
func (w *whenInstalled) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx)
	var said time.Time
	err := wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "JobMeshPolicy"}
		_, err := w.manager.GetRESTMapper().RESTMapping(kind, v1alpha1.GroupVersion.Version)
		if err == nil || time.Since(said) < sayAgain {
			return err == nil, nil
		}
		said = time.Now()
		if meta.IsNoMatchError(err) {
			log.Info("Waiting for the CRD of JobMeshPolicy: it must be installed (config/crd)")
		} else {
			log.Error(err, "Failed to ask the API server for JobMeshPolicy; trying again")
		}
		return false, nil
	})
	if err != nil {
		return nil // told to stop
	}
	if err := w.add(); err != nil {
		return err
	}
	w.done.Store(true)
	return nil
}

// check is a readiness check.
func (w *whenInstalled) check(*http.Request) error {
	if !w.done.Load() {
		return errors.New("the CRD of JobMeshPolicy is not served yet")
	}
	return nil
}
