// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the namespaces that a node lives in: its own processes, mounts and network. When their first process ends,
// the kernel ends every other and drops the mounts and the network, so that a panic or a kill leaves nothing running. What it
// leaves are files and cgroups, which Run removes, and the next Run where this one could not.

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run runs this program again with the given arguments, inside namespaces of its own, and returns its exit code. The arguments
// must lead it to Inside. dir is a folder for its state, gone when Run returns.
func Run(args func(dir string) ([]string, error)) (code int, err error) {
	cache, err := cacheDir()
	if err != nil {
		return 0, err
	}
	sweep(cache)
	dir, err := os.MkdirTemp(cache, statePattern)
	if err != nil {
		return 0, err
	}
	lock, err := lockState(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	defer func() { err = errors.Join(err, remove(dir)) }()
	if err := makeCgroups(cgroupOf(dir)); err != nil {
		return 0, err
	}
	words, err := args(dir)
	if err != nil {
		return 0, err
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	cmd := exec.Command("/proc/self/exe", words...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // the terminal's Ctrl-C comes here first, and goes on from here
	}
	// Pdeathsig means the end of the thread that forked, so it must last as long as the program.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("entering namespaces: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// Inside is the first process of the namespaces: it prepares the mounts, runs this program once more with the given arguments,
// hands signals on to it, reaps whatever is orphaned, and ends with its exit code.
func Inside(dir string, args ...string) (int, error) {
	if os.Getpid() != 1 {
		return 0, errors.New("not in namespaces of its own")
	}
	if err := mounts(dir); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	child, err := os.StartProcess("/proc/self/exe", append(os.Args[:1:1], args...), &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid != child.Pid:
		case status.Exited():
			return status.ExitStatus(), nil
		default:
			return 128 + int(status.Signal()), nil
		}
	}
}

// hardCoded are folders that kubelet and CNI write to whatever they are told.
var hardCoded = []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers"}

// mounts makes the mounts private, gives the process namespace its /proc, and hides the machine's own folders of the same kind.
func mounts(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	for _, path := range hardCoded {
		own := filepath.Join(dir, strings.ReplaceAll(path[1:], "/", "-"))
		for _, folder := range []string{path, own} {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		if err := syscall.Mount(own, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
	}
	// Within, they are shared again: the kubelet hands mounts on to containers.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

func lockState(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// sweep removes what nodes left whose program was killed.
func sweep(cache string) {
	dirs, _ := filepath.Glob(filepath.Join(cache, statePattern))
	for _, dir := range dirs {
		if lock, err := lockState(dir); err == nil {
			_ = remove(dir)
			_ = lock.Close()
		}
	}
}

// remove removes a node's files and cgroups. The processes are gone or going: a cgroup can be removed a moment later.
func remove(dir string) error {
	roots, err := cgroups()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, cgroupOf(dir))
		for range 50 {
			if err = removeCgroup(group); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("removing a cgroup: %w", err)
		}
	}
	return os.RemoveAll(dir)
}

// removeCgroup removes a cgroup and those below it, which is all that can be removed of one.
func removeCgroup(group string) error {
	entries, err := os.ReadDir(group)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(group, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(group); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}

// podControllers are what the kubelet looks for in the cgroup that it is given, as far as the machine has them.
var podControllers = []string{"cpu", "cpuset", "memory", "hugetlb", "pids"}

// handOn gives the cgroups below a version 2 root its controllers, where an init system has not done so.
func handOn(root string) error {
	there, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(there)) {
		if !slices.Contains(podControllers, controller) {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("handing the cgroup controller %s on: %w", controller, err)
		}
	}
	return nil
}

// makeCgroups creates the cgroup in every hierarchy. In version 1 a new cpuset is empty, and holds processes only once it has CPUs
// and memory; in version 2 a cgroup has only the controllers that its parent hands on.
func makeCgroups(group string) error {
	roots, err := cgroups()
	if err != nil {
		return err
	}
	if len(roots) == 1 {
		if err := handOn(roots[0]); err != nil {
			return err
		}
	}
	for _, root := range roots {
		if err := os.Mkdir(filepath.Join(root, group), 0o755); err != nil && !os.IsExist(err) {
			return fmt.Errorf("creating a cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(root, group, file), all, 0o644); err != nil {
				return fmt.Errorf("filling a cpuset: %w", err)
			}
		}
	}
	return nil
}
