// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The suite: a real control plane, simulated nodes, and operators that run with the rights of their own ServiceAccount.

package controllers_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/simnode"
)

const (
	operatorNamespace = "jobmesh-system"
	operatorAccount   = "jobmesh-controller-manager"
	// soon bounds what takes a second or two on an idle machine.
	soon = 60 * time.Second
	// settled is long enough for a wrong action to show.
	settled = 2 * time.Second
)

var (
	testCluster *cluster.Cluster
	fleet       *simnode.Fleet
	admin       client.Client
	account     *rest.Config // the operator's own
)

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

func runSuite(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	flag.Parse()
	// The tests wait far more than they compute.
	_ = flag.Set("test.parallel", "8")
	klog.SetLogger(logr.Discard()) // the nodes' side of every refused port-forward
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.UseDevMode(true), zap.Level(logLevel())))
	if err := startSuite(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { fleet.Stop(); _ = testCluster.Stop() }()
	return m.Run()
}

func startSuite(ctx context.Context) (err error) {
	if testCluster, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return err
	}
	scheme, err := operator.Scheme()
	if err != nil {
		return err
	}
	if admin, err = client.New(testCluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err = testCluster.InstallCRDs(filepath.Join("..", "config", "crd", "bases")); err != nil {
		return err
	}
	if err = admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}); err != nil {
		return err
	}
	if err = applyRBAC(ctx); err != nil {
		return err
	}
	if account, err = testCluster.ServiceAccountConfig(ctx, operatorNamespace, operatorAccount); err != nil {
		return err
	}
	fleet, err = simnode.Start(ctx, testCluster.Config(), simnode.Options{Nodes: 2})
	return err
}

// applyRBAC applies the project's own RBAC, as it is shipped.
func applyRBAC(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join("..", "config", "rbac", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if err := admin.Create(ctx, object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// running is one operator under test.
type running struct {
	registry *prometheus.Registry
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
	stopOnce sync.Once
}

// startOperator runs an operator, with its own ServiceAccount's rights, on the test's namespace alone unless change says otherwise.
func startOperator(t *testing.T, namespace string, change ...func(*operator.Options)) *running {
	t.Helper()
	return startOperatorAs(t, account, namespace, change...)
}

func startOperatorAs(t *testing.T, config *rest.Config, namespace string, change ...func(*operator.Options)) *running {
	t.Helper()
	o := operator.Defaults()
	o.Namespaces = []string{namespace}
	o.MetricsAddress, o.ProbeAddress = "0", "0"
	o.StatusInterval = 500 * time.Millisecond
	for _, f := range change {
		f(&o)
	}
	r := &running{registry: prometheus.NewRegistry(), done: make(chan struct{})}
	o.Registry = r.registry
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.err = operator.Run(ctx, config, o)
	}()
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("The operator ended with: %v", err)
		}
	})
	return r
}

// stop ends the operator and waits for it.
func (r *running) stop() error {
	r.stopOnce.Do(r.cancel)
	<-r.done
	return r.err
}

// metric sums the series of a metric whose labels include all of want.
func (r *running) metric(t *testing.T, name string, want map[string]string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			merged := maps.Clone(labels)
			maps.Copy(merged, want)
			if maps.Equal(labels, merged) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// makeNamespace makes a namespace for one test. It is left to the end of the cluster.
func makeNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// podsOf returns the pods of a Job.
func podsOf(g Gomega, namespace, job string) []corev1.Pod {
	var pods corev1.PodList
	g.Expect(admin.List(context.Background(), &pods, client.InNamespace(namespace), client.MatchingLabels{"batch.kubernetes.io/job-name": job})).To(Succeed())
	return pods.Items
}

// onlyPod waits for the single pod of the Job named job.
func onlyPod(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	g := NewWithT(t)
	var pods []corev1.Pod
	g.Eventually(func(g Gomega) {
		pods = podsOf(g, namespace, "job")
		g.Expect(pods).To(HaveLen(1))
	}, soon, 50*time.Millisecond).Should(Succeed())
	return &pods[0]
}

// eventsOf returns the reasons of the events about an object.
func eventsOf(g Gomega, namespace, name string) []string {
	var list eventsv1.EventList
	g.Expect(admin.List(context.Background(), &list, client.InNamespace(namespace))).To(Succeed())
	var reasons []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// setRules replaces the rules of the operator's ClusterRole, and returns the ones before.
func setRules(ctx context.Context, rules []rbacv1.PolicyRule) error {
	var role rbacv1.ClusterRole
	for {
		if err := admin.Get(ctx, client.ObjectKey{Name: managerRole}, &role); err != nil {
			return err
		}
		role.Rules = rules
		if err := admin.Update(ctx, &role); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func logLevel() zapcore.Level {
	if os.Getenv("JOBMESH_TEST_LOG") != "" {
		return -2
	}
	return zapcore.ErrorLevel + 2
}
