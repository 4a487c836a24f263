// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a scenario runs on: a control plane, simulated nodes, namespaces with a policy each.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/jobmesh/jobmesh/test/simnode"
)

const (
	operatorNamespace = "jobmesh-system"
	operatorAccount   = "jobmesh-controller-manager"
	// teams are the namespaces with Jobs.
	teams = 10
	// statusWriters are many, so that the nodes' own reports are not what everybody waits for.
	statusWriters = 32
	// controllers are those that Jobs need. All others would look at every pod too, and some would tidy up what has to stay: finished pods,
	// and pods of ReplicaSets that no Deployment asked for.
	controllers = "job-controller,ttl-after-finished-controller,garbage-collector-controller,serviceaccount-controller"
	// patience bounds every wait that has no bound of its own.
	patience = 15 * time.Minute
	// pollEvery is seldom enough for a look at 10,000 pods to cost next to nothing.
	pollEvery = 300 * time.Millisecond
)

// rig is what runs. Its zero value stops too.
type rig struct {
	began    time.Time
	operator string // the binary
	name     string
	profile  bool
	logs     string // a folder to keep, or ""
	dir      string
	cluster  *cluster.Cluster
	fleet    *simnode.Fleet
	admin    client.Client
	clients  *kubernetes.Clientset
	account  *rest.Config // the operator's own rights
	waves    int
	oracle   atomic.Pointer[wave] // whose stuck pods are told
	owners   sync.Map             // of names to the owners of the background's pods
	running  *process
}

// start starts everything but the operator.
func (r *rig) start(ctx context.Context, s size) (err error) {
	if r.dir, err = os.MkdirTemp("", "jobmesh-scale-"); err != nil {
		return err
	}
	if err := os.MkdirAll(r.logDir(), 0o700); err != nil {
		return err
	}
	r.cluster, err = cluster.Start(ctx, cluster.Options{
		LogDir: r.logDir(), ControllerManagerFlags: []string{"--controllers=" + controllers}, StartTimeout: 3 * time.Minute,
	})
	if err != nil {
		return err
	}
	// Every template names its node, and the cores are few.
	if err := r.cluster.Kill("kube-scheduler"); err != nil {
		return err
	}
	config := r.cluster.Config()
	config.QPS = -1
	scheme, err := operator.Scheme()
	if err != nil {
		return err
	}
	if r.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if r.clients, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	r.fleet, err = simnode.Start(ctx, r.cluster.Config(), simnode.Options{Nodes: s.Nodes, NamePrefix: "node", StatusWriters: statusWriters, Ended: r.ended})
	if err != nil {
		return err
	}
	if err := r.install(ctx); err != nil {
		return err
	}
	for i := range teams {
		if err := r.makeTeam(ctx, team(i)); err != nil {
			return err
		}
	}
	if r.account, err = r.cluster.ServiceAccountConfig(ctx, operatorNamespace, operatorAccount); err != nil {
		return err
	}
	if err := r.cluster.Kubeconfig(r.kubeconfig(), r.account); err != nil {
		return err
	}
	r.say("a control plane, %d simulated nodes and %d namespaces with a policy each are up", s.Nodes, teams)
	return nil
}

// ended hands the pods whose apps have ended to whoever asked for them.
func (r *rig) ended(namespace, pod, node string) {
	if w := r.oracle.Load(); w != nil && w.owns(pod) {
		w.stuck <- place{namespace, pod, node}
	}
}

// say tells of progress.
func (r *rig) say(format string, args ...any) {
	fmt.Printf("%7.1f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
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
	return r.eventually(ctx, "the API server to serve policies", func() (bool, error) {
		err := r.admin.List(ctx, &v1alpha1.JobMeshPolicyList{})
		return err == nil, err
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

func team(i int) string { return fmt.Sprintf("team-%d", i%teams) }

// makeTeam makes a namespace that Jobs can run in at once, and whose policy enforces.
func (r *rig) makeTeam(ctx context.Context, name string) error {
	if err := r.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	policy := &v1alpha1.JobMeshPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "enforce"}}
	if err := r.admin.Create(ctx, policy); err != nil {
		return err
	}
	return r.eventually(ctx, "the ServiceAccount of "+name, func() (bool, error) {
		err := r.admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, err
	})
}

// stop stops everything and removes every file but, where they are wanted, the logs.
func (r *rig) stop(failed bool) (logs string, err error) {
	if r.running != nil {
		err = r.running.stop()
	}
	if r.fleet != nil {
		r.fleet.Stop()
	}
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	if r.dir == "" || r.logs == "" && failed {
		return r.logDir(), err
	}
	return r.logDir(), errors.Join(err, os.RemoveAll(r.dir))
}

func (r *rig) kubeconfig() string { return filepath.Join(r.dir, "operator.kubeconfig") }

func (r *rig) logDir() string {
	if r.logs != "" {
		return filepath.Join(r.logs, r.name)
	}
	return filepath.Join(r.dir, "logs")
}

// eventually asks until done says so. It ends early where the cluster or the operator does.
func (r *rig) eventually(ctx context.Context, what string, done func() (bool, error)) error {
	var exited chan struct{}
	if r.running != nil {
		exited = r.running.exited
	}
	deadline := time.After(patience)
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.cluster.Done():
			return fmt.Errorf("waiting for %s: the control plane ended", what)
		case <-exited:
			return fmt.Errorf("waiting for %s: the operator ended: %w", what, r.running.err)
		case <-deadline:
			return fmt.Errorf("waiting for %s: not within %s: %w", what, patience, err)
		case <-time.After(pollEvery):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
