// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file says on what was measured.

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/jobmesh/jobmesh/test/e2e/node"
	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

type machine struct {
	CPUs                                             int
	CPU, Memory, Kernel                              string
	Kubernetes, Runtime, Cgroups, Go, Istio, JobMesh string
	// Own says that the node was brought up for this, and shares its machine with the control plane and the bench.
	Own   bool
	Nodes int
}

func describeMachine(ctx context.Context, clientset kubernetes.Interface) (machine, error) {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Own: workload.ProxyImage == node.ProxyImage}
	m.CPU = firstMatch("/proc/cpuinfo", `model name\s*: (.+)`)
	if kilobytes, err := strconv.Atoi(firstMatch("/proc/meminfo", `MemTotal:\s+(\d+) kB`)); err == nil {
		m.Memory = fmt.Sprintf("%.0f GiB", float64(kilobytes)/(1<<20))
	}
	m.Kernel = "Linux " + firstMatch("/proc/sys/kernel/osrelease", `^(\d+\.\d+(?:\.\d+)?)`)
	m.Cgroups = "v1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroups = "v2"
	}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return m, err
	}
	m.Kubernetes = version.GitVersion
	nodes, err := clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return m, err
	}
	m.Nodes = len(nodes.Items)
	if m.Nodes > 0 {
		m.Runtime = strings.Replace(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "://", " ", 1)
	}
	m.Istio = workload.ProxyImage
	if m.Own {
		m.Istio = firstMatch("test/e2e/modules/istio/go.mod", `istio\.io/istio (v\S+)`)
	}
	return m, nil
}

// firstMatch returns what the pattern's group finds in a file, or "".
func firstMatch(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return strings.TrimSpace(string(m[1]))
	}
	return ""
}

// load is the machine's load average over the last minute.
func load() float64 {
	value, _ := strconv.ParseFloat(firstMatch("/proc/loadavg", `^(\S+)`), 64)
	return value
}
