// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node brings up a real one-node Kubernetes cluster on a Linux machine, as root and without a container engine: the
// control plane, containerd, runc and a kubelet, with the images that the tests run. It lives in namespaces of its own, so that
// nothing of it outlives the program, whatever ends that.
//
// This file holds what the machine must have.
package node

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// requirement is something that comes with the machine, and the Debian package that brings it.
type requirement struct {
	what, debian string
	met          func() bool
}

// cniDirs are where distributions put the CNI plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

var requirements = []requirement{
	{"runc", "runc", command("runc")},
	{"the CNI plugins bridge, host-local and loopback", "containernetworking-plugins", func() bool { return cniDir() != "" }},
	{"iptables", "iptables", command("iptables")},
	{"ip", "iproute2", command("ip")},
	{"mount", "mount", command("mount")},
	{"a static busybox", "busybox-static", func() bool { return busybox() != "" }},
}

// Check returns an error of one line where this machine cannot run a node. On Debian and its like it installs what is missing.
func Check(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a real node needs Linux, not %s; %s", runtime.GOOS, elsewhere)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("a real node needs root (try sudo -E make e2e); %s", elsewhere)
	}
	if _, err := cgroups(); err != nil {
		return err
	}
	missing := unmet()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err == nil {
		if err := install(ctx, missing); err != nil {
			return fmt.Errorf("installing %s: %w", names(missing), err)
		}
		missing = unmet()
	}
	if len(missing) > 0 {
		return fmt.Errorf("a real node needs %s (Debian's packages: %s)", names(missing), strings.Join(packages(missing), " "))
	}
	return nil
}

const elsewhere = "or give it a cluster: make e2e KUBECONFIG=<file> PROXY_IMAGE=<image> APP_IMAGE=<image>"

func unmet() []requirement {
	return slices.DeleteFunc(slices.Clone(requirements), func(r requirement) bool { return r.met() })
}

func install(ctx context.Context, missing []requirement) error {
	fmt.Println("e2e: installing", strings.Join(packages(missing), " "))
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages(missing)...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	return nil
}

func names(rs []requirement) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.what)
	}
	return strings.Join(out, ", ")
}

func packages(rs []requirement) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.debian)
	}
	return out
}

func command(name string) func() bool {
	return func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
}

func cniDir() string {
	i := slices.IndexFunc(cniDirs, func(dir string) bool {
		return !slices.ContainsFunc([]string{"bridge", "host-local", "loopback"}, func(plugin string) bool {
			_, err := os.Stat(filepath.Join(dir, plugin))
			return err != nil
		})
	})
	if i < 0 {
		return ""
	}
	return cniDirs[i]
}

// busybox returns the path of a busybox that needs no libraries, or "".
func busybox() string {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return ""
	}
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return ""
	}
	return path
}

// cgroups returns the roots of the machine's cgroup hierarchies: one per controller in version 1, a single one in version 2.
func cgroups() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if _, err := os.Stat(filepath.Join(root, controller, "cgroup.procs")); err != nil {
			return nil, errors.New("a real node needs the cgroup controllers cpu, memory and pids mounted under " + root)
		}
	}
	all, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	for i, file := range all {
		all[i] = filepath.Dir(file)
	}
	return all, err
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
