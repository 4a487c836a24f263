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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

const (
	// lookAgain is how often the API server is asked for the CRD.
	lookAgain = 2 * time.Second
	// sayAgain is how often the log says that the operator still waits.
	sayAgain = time.Minute
)

// mapper knows the resources of the kinds that the operator works with, so that a manager can be made while the API server is
// away, or does not serve one of them yet.
type mapper struct {
	served meta.RESTMapper // what the API server says
}

// provide is an Options.MapperProvider.
func (m *mapper) provide(c *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	var err error
	if m.served, err = apiutil.NewDynamicRESTMapper(c, httpClient); err != nil {
		return nil, err
	}
	known := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		policyKind, corev1.SchemeGroupVersion.WithKind("Pod"), batchv1.SchemeGroupVersion.WithKind("Job"),
	} {
		known.Add(kind, meta.RESTScopeNamespace)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, m.served}}, nil
}

var policyKind = v1alpha1.GroupVersion.WithKind("JobMeshPolicy")

// whenInstalled adds the controllers as soon as the API server serves JobMeshPolicy. It is a manager.Runnable.
type whenInstalled struct {
	served meta.RESTMapper
	add    func() error
	done   atomic.Bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: replicas that wait for the lease fill their caches too.
func (w *whenInstalled) NeedLeaderElection() bool { return false }

// Start waits, and adds the controllers.
func (w *whenInstalled) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx)
	var said time.Time
	if err := wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		_, err := w.served.RESTMapping(policyKind.GroupKind(), policyKind.Version)
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
	}); err != nil {
		return nil //nolint:nilerr // told to stop
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
