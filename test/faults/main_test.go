// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The suite: one control plane with simulated nodes for most tests, and the operator's binary.

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
)

// root is the checkout.
var root = filepath.Join("..", "..")

// update writes what was seen into the documentation.
var update = flag.Bool("update", false, "write the results to docs/reliability.md")

var (
	// shared is where the tests run that leave the control plane as it was.
	shared *stage
	// manager is the path of the operator's binary.
	manager string
)

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

func runSuite(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		_ = flag.Set("test.parallel", "8")
	} else {
		_ = flag.Set("test.parallel", "3") // they wait far more than they compute
	}
	klog.SetLogger(logr.Discard()) // the nodes' side of every refused port-forward
	ctrl.SetLogger(logr.Discard())
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy's
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "jobmesh-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manager = filepath.Join(dir, "manager")
	if err := buildManager(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if shared, err = newStage(ctx, cluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.stop()
	if err := shared.install(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := report(*update && code == 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// buildManager builds the operator as `make build` does, so that they share what is compiled.
func buildManager(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", manager, "./cmd/manager")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the operator: %w\n%s", err, out)
	}
	return nil
}

// stage is a control plane with simulated nodes, and what is needed to play on it.
type stage struct {
	cluster *cluster.Cluster
	fleet   *simnode.Fleet
	admin   client.Client
	account *rest.Config // the operator's own
}

// newStage starts a control plane and two nodes. The CRD is not installed yet, and neither are the operator's rights.
func newStage(ctx context.Context, options cluster.Options) (_ *stage, err error) {
	s := &stage{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.cluster, err = cluster.Start(ctx, options); err != nil {
		return nil, err
	}
	scheme, err := operator.Scheme()
	if err != nil {
		return nil, err
	}
	if s.admin, err = client.New(s.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if s.fleet, err = simnode.Start(ctx, s.cluster.Config(), simnode.Options{Nodes: 2}); err != nil {
		return nil, err
	}
	if err = s.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}); err != nil {
		return nil, err
	}
	rights, err := filepath.Glob(filepath.Join(root, "config", "rbac", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range rights {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		if err := s.apply(ctx, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	s.account, err = s.cluster.ServiceAccountConfig(ctx, operatorNamespace, operatorAccount)
	return s, err
}

// install installs the CRD.
func (s *stage) install() error {
	return s.cluster.InstallCRDs(filepath.Join(root, "config", "crd", "bases"))
}

func (s *stage) apply(ctx context.Context, file string) error {
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
		if err := s.admin.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) stop() {
	if s.fleet != nil {
		s.fleet.Stop()
	}
	if s.cluster != nil {
		_ = s.cluster.Stop()
	}
}

// makeNamespace makes a namespace that Jobs can run in at once.
func (s *stage) makeNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fault-"}}
	if err := s.admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "the ServiceAccount of a new namespace", func() error {
		return s.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return namespace.Name
}

// eventually tries until it works, and fails the test where it does not within the bound.
func eventually(t *testing.T, bound time.Duration, what string, try func() error) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		err := try()
		switch {
		case err == nil:
			return time.Since(began)
		case time.Since(began) > bound:
			t.Fatalf("Not within %v: %s: %v", bound, what, err)
		case t.Context().Err() != nil:
			t.Fatalf("Waiting for %s: %v", what, errors.Join(t.Context().Err(), err))
		}
		time.Sleep(50 * time.Millisecond)
	}
}
