// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file has the API server write down when what became of Jobs was written.

package node

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// AuditLog is the file in the folder for logs that tells, to the microsecond, who wrote the status of a pod or a Job, read a pod, or
// forwarded a port.
const AuditLog = "audit.log"

// audit has the API server write the AuditLog, and returns its flags.
func (n *Node) audit() ([]string, error) {
	type resources = map[string]any
	policy, err := json.MarshalIndent(map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []any{
			map[string]any{"level": "Request", "verbs": []string{"patch", "update"}, "omitManagedFields": true, "resources": []resources{
				{"group": "", "resources": []string{"pods/status"}}, {"group": "batch", "resources": []string{"jobs/status"}},
			}},
			map[string]any{"level": "Metadata", "verbs": []string{"get", "create"}, "resources": []resources{
				{"group": "", "resources": []string{"pods", "pods/portforward", "pods/exec"}},
			}},
			map[string]any{"level": "None"},
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	file := n.path("audit.yaml")
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + filepath.Join(n.config.LogDir, AuditLog)}, os.WriteFile(file, policy, 0o644)
}
