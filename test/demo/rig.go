// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what the demo runs on: a control plane, a simulated node, the operator, and how they go away again.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/controlplane"
	"github.com/jobmesh/jobmesh/test/simnode"
)

const (
	operatorNamespace = "jobmesh-system"
	operatorAccount   = "jobmesh-controller-manager"
	// relistDelay is the mean delay of a kubelet that looks at its containers once a second.
	relistDelay = 500 * time.Millisecond
	// restartBackOff is a fifth of a kubelet's.
	restartBackOff = 2 * time.Second
	// patience bounds every wait. On an idle machine each takes a few seconds.
	patience = 60 * time.Second
)

// rig is what runs. Its zero value stops too.
type rig struct {
	dir      string
	cluster  *cluster.Cluster
	fleet    *simnode.Fleet
	operator *process
	admin    client.Client
	tables   rest.Interface // to ask for what kubectl prints
}

// start starts everything, and tells of each step.
func (r *rig) start(ctx context.Context, s *screen, heard func(line []byte)) (err error) {
	if r.dir, err = os.MkdirTemp("", "jobmesh-demo-"); err != nil {
		return err
	}
	if err := os.Mkdir(r.logDir(), 0o700); err != nil {
		return err
	}
	began := time.Now()
	if r.cluster, err = cluster.Start(ctx, cluster.Options{LogDir: r.logDir()}); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	s.step(began, fmt.Sprintf("Kubernetes %s started: etcd, API server, controller manager, scheduler (the real ones)", controlplane.Version))

	began = time.Now()
	r.fleet, err = simnode.Start(ctx, r.cluster.Config(), simnode.Options{NamePrefix: "node", RelistDelay: relistDelay, RestartBackOff: restartBackOff})
	if err != nil {
		return err
	}
	s.step(began, "a node joined (simulated: its containers are scripts, its istio-proxy answers as pilot-agent does)")

	began = time.Now()
	if err := r.install(ctx); err != nil {
		return err
	}
	s.step(began, "JobMesh installed: the CRD and the operator's ServiceAccount, ClusterRole and bindings")

	began = time.Now()
	account, err := r.cluster.ServiceAccountConfig(ctx, operatorNamespace, operatorAccount)
	if err != nil {
		return err
	}
	if err := r.cluster.Kubeconfig(r.kubeconfig(), account); err != nil {
		return err
	}
	if r.operator, err = startOperator(ctx, r.kubeconfig(), filepath.Join(r.logDir(), "operator.log"), heard); err != nil {
		return err
	}
	s.step(began, "the operator runs (bin/manager), with the rights of that ServiceAccount and no others")
	return nil
}

func (r *rig) connect() error {
	scheme, err := operator.Scheme()
	if err != nil {
		return err
	}
	if r.admin, err = client.New(r.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(r.cluster.Config())
	if err != nil {
		return err
	}
	r.tables = clientset.CoreV1().RESTClient()
	return nil
}

// install applies the CRD and the rights as they are shipped.
func (r *rig) install(ctx context.Context) error {
	rights, err := filepath.Glob("config/rbac/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range append([]string{"config/crd/bases/jobmesh.dev_jobmeshpolicies.yaml", "config/manager/namespace.yaml"}, rights...) {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		if err := r.apply(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return eventually(ctx, "the API server to serve policies", func() error {
		return r.admin.List(ctx, &v1alpha1.JobMeshPolicyList{})
	})
}

func (r *rig) apply(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := r.admin.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// makeNamespace makes a namespace that Jobs can run in at once.
func (r *rig) makeNamespace(ctx context.Context, name string) error {
	if err := r.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	return eventually(ctx, "the ServiceAccount of "+name, func() error {
		return r.admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// stop stops everything that was started and removes every file but, where they are wanted, the logs.
func (r *rig) stop(keepLogs bool) (logs string, err error) {
	if r.operator != nil {
		err = r.operator.stop()
	}
	if r.fleet != nil {
		r.fleet.Stop()
	}
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	if r.dir == "" {
		return "", err
	}
	if keepLogs {
		_ = os.Remove(r.kubeconfig())
		return r.logDir(), err
	}
	return "", errors.Join(err, os.RemoveAll(r.dir))
}

func (r *rig) kubeconfig() string { return filepath.Join(r.dir, "operator.kubeconfig") }

func (r *rig) logDir() string { return filepath.Join(r.dir, "logs") }

// eventually tries until it works.
func eventually(ctx context.Context, what string, try func() error) error {
	deadline := time.After(patience)
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
