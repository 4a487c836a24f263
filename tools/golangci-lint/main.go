// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command golangci-lint is golangci-lint with Kube-API-Linter built in. Kube-API-Linter is served as a plugin only, and
// golangci-lint takes a plugin in where it is compiled.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	_ "sigs.k8s.io/kube-api-linter" // registers the linter kubeapilinter
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, "golangci-lint:", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo names the version of golangci-lint that this module requires, so that `golangci-lint version` tells the truth.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{GoVersion: runtime.Version(), Version: "unknown", Commit: "with kube-api-linter", Date: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, dep := range build.Deps {
		switch dep.Path {
		case "github.com/golangci/golangci-lint/v2":
			info.Version = strings.TrimPrefix(dep.Version, "v")
		case "sigs.k8s.io/kube-api-linter":
			info.Commit = "with kube-api-linter " + dep.Version
		}
	}
	return info
}
