// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e runs another command, such as go test, beside a real one-node Kubernetes cluster with this checkout's operator
// image, or beside the cluster of KUBECONFIG where PROXY_IMAGE and APP_IMAGE are given too. Run it from the checkout's root,
// after make build:
//
//	bin/e2e COMMAND [ARGUMENT...]
//
// It ends with the command's exit code. The command finds KUBECONFIG, PROXY_IMAGE, APP_IMAGE, IMG (the operator's image),
// ARTIFACTS (a folder for what is worth keeping after a failure) and E2E_KUBELET_PID in its environment. The folder is kept,
// and printed, where the command failed or ARTIFACTS was given.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jobmesh/jobmesh/test/e2e/node"
)

// The first arguments of the two runs of this program inside the namespaces.
const (
	insideArgument = "-inside"
	nodeArgument   = "-node"
)

// plan is what the run inside the namespaces is told, through a file in the node's folder.
type plan struct {
	Node    node.Config
	Command []string
}

const planFile = "plan.json"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	switch {
	case len(args) == 0:
		return 2, errors.New("usage: e2e COMMAND [ARGUMENT...]")
	case args[0] == insideArgument:
		return node.Inside(args[1], nodeArgument, args[1])
	case args[0] == nodeArgument:
		return inside(args[1])
	}
	logs, done, err := artifacts()
	if err != nil {
		return 1, err
	}
	code, err := outside(args, logs)
	done(code == 0 && err == nil)
	return code, err
}

// artifacts returns the folder for logs, and what to call at the end.
func artifacts() (string, func(passed bool), error) {
	given := os.Getenv("ARTIFACTS")
	dir := given
	var err error
	if given == "" {
		dir, err = os.MkdirTemp("", "jobmesh-e2e-")
	} else if dir, err = filepath.Abs(given); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	return dir, func(passed bool) {
		if given == "" && passed {
			_ = os.RemoveAll(dir)
			return
		}
		if given == "" && os.Remove(dir) == nil {
			return // there was nothing in it
		}
		fmt.Println("e2e: logs and descriptions are in", dir)
	}, err
}

// outside prepares everything that needs the machine and the network, then enters the namespaces.
func outside(command []string, logs string) (int, error) {
	if existing() {
		fmt.Println("e2e: using the cluster of", os.Getenv("KUBECONFIG"))
		return execute(command, append(os.Environ(), "ARTIFACTS="+logs))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	manager := filepath.Join(root, "bin", "manager")
	if _, err := os.Stat(manager); err != nil {
		return 1, fmt.Errorf("run make build first, in the checkout's root: %w", err)
	}
	if err := node.Check(ctx); err != nil {
		return 1, err
	}
	binaries, err := node.Build(ctx, root)
	if err != nil {
		return 1, err
	}
	return node.Run(func(dir string) ([]string, error) {
		images, err := node.Images(ctx, root, dir, manager, binaries)
		if err != nil {
			return nil, err
		}
		config := node.Config{Dir: dir, LogDir: logs, Binaries: binaries, Images: images}
		text, err := json.Marshal(plan{Node: config, Command: command})
		if err != nil {
			return nil, err
		}
		return []string{insideArgument, dir}, os.WriteFile(filepath.Join(dir, planFile), text, 0o600)
	})
}

// existing tells whether to use a cluster that is there. KUBECONFIG alone, which many shells have set, is no such wish.
func existing() bool {
	for _, name := range []string{"KUBECONFIG", "PROXY_IMAGE", "APP_IMAGE"} {
		if os.Getenv(name) == "" {
			return false
		}
	}
	return true
}

// inside starts the node and runs the command beside it.
func inside(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, planFile))
	if err != nil {
		return 1, err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return 1, err
	}
	// The cluster ends with the context: an interrupted command has no more use for it.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	began := time.Now()
	n, err := node.Start(ctx, p.Node)
	if err != nil {
		return 1, err
	}
	fmt.Printf("e2e: the node is ready after %s\n", time.Since(began).Round(100*time.Millisecond))
	environment := append(os.Environ(), n.Environment()...)
	environment = append(environment, "PATH="+n.Path(), "ARTIFACTS="+p.Node.LogDir,
		// There is no network here: what is missing must fail, not hang.
		"GOPROXY=off", "GOFLAGS=-mod=readonly")
	code, err := execute(p.Command, environment)
	if code != 0 && ctx.Err() == nil {
		n.Describe(ctx)
	}
	return code, errors.Join(err, n.Stop())
}

// execute runs the command in a process group of its own, so that a signal ends all of it.
func execute(command, environment []string) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	interrupted := false
	for {
		select {
		case <-signals:
			if interrupted {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
			interrupted = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		case err := <-ended:
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}
