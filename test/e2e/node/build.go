// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file builds what the machine does not bring: Kubernetes, containerd and Istio's pilot-agent, each from its Go module and
// cached by its version.

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jobmesh/jobmesh/test/controlplane"
)

// Binaries are the folders with what a node runs.
type Binaries struct {
	// Kubernetes holds etcd, the control plane, kubectl and the kubelet.
	Kubernetes string
	// Containerd holds containerd, its shim and ctr.
	Containerd string
	// Istio holds pilot-agent and envoy_bootstrap.json, the template that it starts Envoy from.
	Istio string
}

// Modules of the binaries, below test/e2e/modules.
const (
	containerdModule = "github.com/containerd/containerd/v2"
	istioModule      = "istio.io/istio"
	bootstrap        = "tools/packaging/common/envoy_bootstrap.json"
)

// Build builds what is not in the cache yet. root is the checkout.
func Build(ctx context.Context, root string) (Binaries, error) {
	var b Binaries
	script := exec.CommandContext(ctx, filepath.Join(root, "test/controlplane/build.sh"), controlplane.Version, "kubelet")
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		return b, fmt.Errorf("building Kubernetes: %w", err)
	}
	b.Kubernetes = strings.TrimSpace(string(out))

	modules := filepath.Join(root, "test/e2e/modules")
	b.Containerd, err = cached(ctx, filepath.Join(modules, "containerd"), containerdModule, func(dir string, _ module) error {
		const commands = containerdModule + "/cmd/"
		return goBuild(ctx, filepath.Join(modules, "containerd"), "-tags", "no_btrfs", "-ldflags", "-s -w", "-o", dir+"/",
			commands+"containerd", commands+"containerd-shim-runc-v2", commands+"ctr")
	})
	if err != nil {
		return b, err
	}
	b.Istio, err = cached(ctx, filepath.Join(modules, "istio"), istioModule, func(dir string, m module) error {
		if err := copyFile(filepath.Join(m.Dir, bootstrap), filepath.Join(dir, filepath.Base(bootstrap))); err != nil {
			return err
		}
		return goBuild(ctx, filepath.Join(modules, "istio"), "-ldflags", "-s -w", "-o", dir+"/", istioModule+"/pilot/cmd/pilot-agent")
	})
	return b, err
}

type module struct{ Path, Version, Dir string }

// cached returns the folder of a module's binaries, built by fill where it is not there. It appears whole, by a rename.
func cached(ctx context.Context, in, path string, fill func(dir string, m module) error) (string, error) {
	var m module
	list := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	list.Dir = in
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("looking up %s: %w", path, err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return "", fmt.Errorf("looking up %s: %w", path, err)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	target := filepath.Join(cache, strings.ReplaceAll(path, "/", "-")+"-"+m.Version)
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	fmt.Println("e2e: building", path, m.Version)
	dir, err := os.MkdirTemp(cache, ".build-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	if err := fill(dir, m); err != nil {
		return "", fmt.Errorf("building %s: %w", path, err)
	}
	if err := os.Rename(dir, target); err != nil {
		if _, there := os.Stat(target); there != nil {
			return "", err
		}
	}
	return target, nil
}

// cacheDir is where binaries and the state of running nodes lie.
func cacheDir() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the cache folder: %w", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	cache = filepath.Join(cache, "jobmesh", "e2e")
	return cache, os.MkdirAll(cache, 0o755)
}

// goBuild builds static binaries.
func goBuild(ctx context.Context, in string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	return target.Close()
}
