// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cases runs the operator on a real node, with real kubelets and the real pilot-agent, and looks at what becomes of Jobs.
// It needs the cluster that `make e2e` brings up or is given.
//
// This file holds what is set up once: clients, the operator.
package cases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/e2e/deploy"
	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

// Where and as what config/default installs the operator.
const (
	operatorNamespace = deploy.Namespace
	operatorLabels    = deploy.Labels
)

// The cluster, the images and the folder for what is worth keeping, from the environment.
var (
	kube      client.Client
	clientset *kubernetes.Clientset
	artifacts = os.Getenv("ARTIFACTS")
)

func TestMain(m *testing.M) {
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := aftermath(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// aftermath keeps the operator's log and looks at the operator after all tests: it must not have restarted but where a test
// killed it.
func aftermath() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	describe(ctx, filepath.Join(artifacts, "operator"), operatorNamespace)
	pods, err := clientset.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorLabels})
	if err != nil {
		return err
	}
	restarts := int32(0)
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
	}
	if restarts > kills {
		return fmt.Errorf("the operator restarted %d times, want at most %d", restarts, kills)
	}
	return nil
}

func setUp() error {
	if workload.AppImage == "" || workload.ProxyImage == "" || os.Getenv("KUBECONFIG") == "" {
		return fmt.Errorf("there is no cluster to test on: run make e2e")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.RateLimiter = nil
	config.QPS, config.Burst = 200, 400
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if kube, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	if clientset, err = kubernetes.NewForConfig(rest.CopyConfig(config)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := install(ctx); err != nil {
		describe(context.WithoutCancel(ctx), filepath.Join(artifacts, "install"), operatorNamespace)
		return fmt.Errorf("installing the operator: %w", err)
	}
	return nil
}

// install installs the operator with the given components.
func install(ctx context.Context, components ...string) error {
	return deploy.Operator(ctx, kube, "../../..", components...)
}

func awaitOperator(ctx context.Context) error { return deploy.Await(ctx, kube) }
