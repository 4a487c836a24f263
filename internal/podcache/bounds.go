// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The bounds: how much of one pod is kept, whatever a tenant writes into it.
//
// A decision about what is left of a pod beyond these bounds may come out too early. It does no harm: before a proxy is asked,
// the decision is made again on the whole pod, read from the API server.

package podcache

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxContainers is far above what a Job's pod has; each costs about a kilobyte.
	maxContainers = 64
	// maxLabels bounds the labels, which may be 63 bytes of value and 317 of key each.
	maxLabels = 64
	// maxExitCodes bounds the exit codes in one container's restart rules.
	maxExitCodes = 256
	// maxStatusText bounds what a kubelet writes, in bytes; its longest is a container ID of about 80.
	maxStatusText = 256
)

// cut returns the beginning of a text, without keeping the rest in memory.
func cut(text string) string {
	if len(text) <= maxStatusText {
		return text
	}
	return strings.Clone(text[:maxStatusText])
}

// boundedLabels keeps the first maxLabels by name.
func boundedLabels(labels map[string]string) map[string]string {
	if len(labels) <= maxLabels {
		return labels
	}
	kept := make(map[string]string, maxLabels)
	for _, key := range slices.Sorted(maps.Keys(labels))[:maxLabels] {
		kept[key] = labels[key]
	}
	return kept
}

func boundedRules(rules []corev1.ContainerRestartRule) []corev1.ContainerRestartRule {
	total := 0
	for i := range rules {
		if rules[i].ExitCodes != nil {
			total += len(rules[i].ExitCodes.Values)
		}
	}
	if total > maxExitCodes {
		return nil
	}
	return rules
}
