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
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// Where and as what config/default installs the operator.
const (
	operatorNamespace  = "jobmesh-system"
	operatorDeployment = "jobmesh-controller-manager"
	operatorLabels     = "app.kubernetes.io/name=jobmesh,app.kubernetes.io/component=controller-manager"
)

// The cluster, the images and the folder for what is worth keeping, from the environment.
var (
	kube       client.Client
	clientset  *kubernetes.Clientset
	appImage   = os.Getenv("APP_IMAGE")
	proxyImage = os.Getenv("PROXY_IMAGE")
	artifacts  = os.Getenv("ARTIFACTS")
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
	if appImage == "" || proxyImage == "" || os.Getenv("KUBECONFIG") == "" {
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

// install installs the operator with kustomize, as a user does: config/default with the image's name, and the given components.
// A cluster that has the operator may be tested without IMG.
func install(ctx context.Context, components ...string) error {
	image := os.Getenv("IMG")
	if image == "" {
		err := kube.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: operatorDeployment}, &appsv1.Deployment{})
		if err != nil {
			return fmt.Errorf("the cluster must have the operator, or IMG must name its image: %w", err)
		}
		return awaitOperator(ctx)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	// Kustomize takes resources by relative path only, so the overlay lies in the checkout, outside git.
	if err := os.MkdirAll(filepath.Join(root, "dist"), 0o755); err != nil {
		return err
	}
	overlay, err := os.MkdirTemp(filepath.Join(root, "dist"), "e2e-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(overlay) }()

	kustomize := filepath.Join(root, "bin/kustomize")
	if _, err := run(ctx, overlay, kustomize, "create", "--resources", "../../config/default"); err != nil {
		return err
	}
	if _, err := run(ctx, overlay, kustomize, "edit", "set", "image", "jobmesh-controller="+image); err != nil {
		return err
	}
	for _, component := range components {
		if _, err := run(ctx, overlay, kustomize, "edit", "add", "component", "../../config/components/"+component); err != nil {
			return err
		}
	}
	rendered, err := run(ctx, overlay, kustomize, "build", ".")
	if err != nil {
		return err
	}
	manifest := filepath.Join(overlay, "install.yaml")
	if err := os.WriteFile(manifest, []byte(rendered), 0o600); err != nil {
		return err
	}
	if _, err := run(ctx, overlay, "kubectl", "apply", "-f", manifest); err != nil {
		return err
	}
	return awaitOperator(ctx)
}

// awaitOperator waits until every replica of the Deployment's newest revision is ready, and no other is left.
func awaitOperator(ctx context.Context) error {
	key := client.ObjectKey{Namespace: operatorNamespace, Name: operatorDeployment}
	var last error
	for {
		deployment := &appsv1.Deployment{}
		if last = kube.Get(ctx, key, deployment); last == nil {
			s := deployment.Status
			if s.ObservedGeneration == deployment.Generation && s.ReadyReplicas == *deployment.Spec.Replicas &&
				s.UpdatedReplicas == s.ReadyReplicas && s.Replicas == s.ReadyReplicas {
				return nil
			}
			last = fmt.Errorf("%d of %d replicas are ready", s.ReadyReplicas, *deployment.Spec.Replicas)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", ctx.Err(), last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// run runs a command and returns its output; an error tells what it wrote.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
