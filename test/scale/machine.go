// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file says on what was measured.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// machine is what everything ran on.
type machine struct {
	CPUs                                       int
	CPU, Memory, Kernel, Go, Kubernetes, Build string
	Nodes                                      int
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s of memory, %s, shared by everything; Kubernetes %s, %d simulated nodes; JobMesh %s, %s",
		m.CPUs, m.CPU, m.Memory, m.Kernel, m.Kubernetes, m.Nodes, m.Build, m.Go)
}

func describeMachine(r *rig, s size) (machine, error) {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Nodes: s.Nodes}
	m.CPU = firstMatch("/proc/cpuinfo", `model name\s*: (.+)`)
	if kilobytes, err := strconv.Atoi(firstMatch("/proc/meminfo", `MemTotal:\s+(\d+) kB`)); err == nil {
		m.Memory = fmt.Sprintf("%.0f GiB", float64(kilobytes)/(1<<20))
	}
	m.Kernel = "Linux " + firstMatch("/proc/sys/kernel/osrelease", `^(\d+\.\d+(?:\.\d+)?)`)
	version, err := r.clients.Discovery().ServerVersion()
	if err != nil {
		return m, err
	}
	m.Kubernetes = version.GitVersion
	m.Build, err = buildOf(r.operator)
	return m, err
}

// buildOf is what the operator's binary says of its version.
func buildOf(binary string) (string, error) {
	text, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s, which `make build` makes, for its version: %w", binary, err)
	}
	fields := strings.Fields(string(text)) // manager version VERSION (REVISION)
	if len(fields) < 3 {
		return "", fmt.Errorf("%s --version: %q", binary, text)
	}
	return fields[2], nil
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
