// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file writes down what a failed test leaves behind.

package cases

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// describe writes a namespace's objects, events and logs into a folder, and the operator's log beside them.
func describe(ctx context.Context, dir, namespace string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return
	}
	keep := func(file string, args ...string) {
		cmd := exec.CommandContext(ctx, "kubectl", args...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "\n%v\n", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), out, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}
	keep("objects.yaml", "-n", namespace, "get", "pods,jobs,cronjobs,jobmeshpolicies", "-o", "yaml", "--ignore-not-found")
	keep("describe.txt", "-n", namespace, "describe", "pods,jobs,cronjobs,jobmeshpolicies")
	keep("events.txt", "-n", namespace, "get", "events", "--sort-by=.metadata.creationTimestamp", "-o", "wide")
	keep("logs.txt", "-n", namespace, "logs", "--selector", "batch.kubernetes.io/job-name", "--all-containers", "--prefix", "--timestamps",
		"--tail=-1", "--max-log-requests=100")
	keep("operator.txt", "-n", operatorNamespace, "logs", "--selector", operatorLabels, "--prefix", "--timestamps", "--tail=-1")
	keep("operator-describe.txt", "-n", operatorNamespace, "describe", "pods")
}
