// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy installs the operator on the cluster of KUBECONFIG as a user does: with kustomize and kubectl.
package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where and as what config/default installs the operator.
const (
	Namespace  = "jobmesh-system"
	Deployment = "jobmesh-controller-manager"
	Labels     = "app.kubernetes.io/name=jobmesh,app.kubernetes.io/component=controller-manager"
)

// Operator installs config/default of the checkout at root with the given components and IMG as the image, and waits until it runs.
// Without IMG the cluster must have the operator.
func Operator(ctx context.Context, kube client.Client, root string, components ...string) error {
	image := os.Getenv("IMG")
	if image == "" {
		err := kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: Deployment}, &appsv1.Deployment{})
		if err != nil {
			return fmt.Errorf("the cluster must have the operator, or IMG must name its image: %w", err)
		}
		return Await(ctx, kube)
	}
	root, err := filepath.Abs(root)
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
	return Await(ctx, kube)
}

// Await waits until every replica of the Deployment's newest revision is ready, and no other is left.
func Await(ctx context.Context, kube client.Client) error {
	key := client.ObjectKey{Namespace: Namespace, Name: Deployment}
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
