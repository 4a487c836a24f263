// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane knows which Kubernetes release the tests run against and where build.sh leaves its binaries.
package controlplane

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed VERSION
var version string

// Version is the Kubernetes release, without the v, that build.sh builds by default.
var Version = strings.TrimSpace(version)

// commands are the binaries that a cluster is started from. The folder holds kubectl too.
var commands = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// EnvAssets names a folder with the binaries; it wins over the cache folder.
const EnvAssets = "JOBMESH_ASSETS"

// Dir returns the folder with the binaries of a Kubernetes release ("" is Version): $JOBMESH_ASSETS, else the folder
// that build.sh fills under $XDG_CACHE_HOME or ~/.cache. The error says what to run where it is missing or incomplete.
func Dir(release string) (string, error) {
	if release == "" {
		release = Version
	}
	dir := os.Getenv(EnvAssets)
	if dir == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("finding the cache folder: %w", err)
			}
			cache = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(cache, "jobmesh", "kubernetes", release)
	}
	for _, command := range commands {
		if _, err := os.Stat(filepath.Join(dir, command)); err != nil {
			return "", fmt.Errorf("no control plane to run against, build one with `make controlplane`: %w", err)
		}
	}
	return dir, nil
}
