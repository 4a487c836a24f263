// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Running the operator.

package operator

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/controllers"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/metrics"
	"github.com/jobmesh/jobmesh/internal/podcache"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/version"
)

const (
	// leaseName is the Lease that replicas of the operator share.
	leaseName = "jobmesh-leader"
	// component is how the operator names itself in events.
	component = "jobmesh"
	// readyBound bounds one readiness probe.
	readyBound = 500 * time.Millisecond
)

// Scheme knows every type that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the Kubernetes types: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the JobMesh types: %w", err)
	}
	return scheme, nil
}

// Run runs the operator until ctx ends, and then until the attempts under way have ended and the lease is given back.
func Run(ctx context.Context, restConfig *rest.Config, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.UserAgent = "jobmesh/" + version.Version
	// The server's Priority and Fairness limits requests where it must, and the caps on attempts do the rest.
	restConfig.QPS = -1

	scheme, err := Scheme()
	if err != nil {
		return err
	}
	options, mapper := managerOptions(scheme, o), &mapper{}
	options.MapperProvider = mapper.provide
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	add, err := newControllers(mgr, restConfig, o)
	if err != nil {
		return err
	}
	installed := &whenInstalled{served: mapper.served, add: add}
	if err := mgr.Add(installed); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("crd", installed.check); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("cache", cacheSynced(mgr)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

func managerOptions(scheme *runtime.Scheme, o Options) ctrl.Options {
	options := ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:             podcache.ByObject(),
				&v1alpha1.JobMeshPolicy{}: {UnsafeDisableDeepCopy: new(true), Transform: stripPolicy},
			},
			// Every kind that is cached is named above; a read of another one is a mistake, not a reason to watch it.
			ReaderFailOnMissingInformer: true,
		},
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.ProbeAddress,
		PprofBindAddress:              o.PprofAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		// A replica that waits asks for the lease every one to 2.2 seconds, so that an update of the operator stops reaping for no
		// longer than that. A leader that died is succeeded when its lease has run out.
		LeaseDuration:           new(15 * time.Second),
		RenewDeadline:           new(10 * time.Second),
		RetryPeriod:             new(time.Second),
		GracefulShutdownTimeout: new(2 * o.ShutdownGrace),
		Controller:              config.Controller{SkipNameValidation: new(o.Registry != nil)},
	}
	if len(o.Namespaces) > 0 {
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range o.Namespaces {
			options.Cache.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}

// stripPolicy keeps of a policy in memory what its author may make as large as a request only where the operator reads it.
func stripPolicy(object any) (any, error) {
	if p, ok := object.(*v1alpha1.JobMeshPolicy); ok {
		p.ManagedFields, p.OwnerReferences, p.Annotations, p.Labels = nil, nil, nil, nil
	}
	return object, nil
}

// newControllers makes the controllers, and returns what adds them to the manager.
func newControllers(mgr ctrl.Manager, restConfig *rest.Config, o Options) (add func() error, err error) {
	defaults := policy.Defaults{Mode: o.DefaultMode, AllowExecFallback: o.AllowExecFallback}
	policies := &controllers.JobMeshPolicyReconciler{
		Cached: mgr.GetClient(), Writer: mgr.GetClient(),
		Clock: clock.RealClock{}, Defaults: defaults, StatusInterval: o.StatusInterval,
	}
	book := ledger.New(func(policy types.NamespacedName) { policies.Changed(policy) })
	policies.Ledger = book

	registry := o.Registry
	if registry == nil {
		registry = ctrlmetrics.Registry
	}
	recorder, err := metrics.New(registry, book)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics: %w", err)
	}
	policies.Metrics = recorder
	quitter, err := quit.NewClient(restConfig)
	if err != nil {
		return nil, fmt.Errorf("making the quit client: %w", err)
	}
	events := controllers.NewBoundedEvents(mgr.GetEventRecorder(component))
	pods := &controllers.PodReconciler{
		Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Quitter: quitter,
		Events: events,
		Ledger: book, Metrics: recorder, Clock: clock.RealClock{}, Defaults: defaults,
		MaxQuits: o.MaxConcurrentQuits, MaxQuitsPerNode: o.MaxQuitsPerNode, ShutdownGrace: o.ShutdownGrace,
	}
	return func() error {
		if err := policies.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("adding the policy controller: %w", err)
		}
		if err := pods.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("adding the pod controller: %w", err)
		}
		if err := mgr.Add(events); err != nil {
			return fmt.Errorf("adding the events: %w", err)
		}
		return mgr.Add(&controllers.Resync{Pods: pods, Interval: o.ResyncInterval, Namespaces: o.Namespaces})
	}, nil
}

// cacheSynced makes a replica ready once it has seen the cluster, whether it leads or not.
func cacheSynced(mgr ctrl.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), readyBound)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the cache is not in step with the API server yet")
		}
		return nil
	}
}
