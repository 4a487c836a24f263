// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file runs the home-made reaper.

package main

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

//go:embed reaper.sh
var reaperScript string

// reaperPeriod is how often it looks.
const reaperPeriod = 2 * time.Second

// startReaper starts it for one namespace and returns what stops it. It runs for its own Jobs alone, so that it disturbs no other kind,
// and starts at a random moment within a period after the Job's creation, as if it had always run.
func startReaper(ctx context.Context, namespace string) func() {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(reaperPeriod)):
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", reaperScript, "reaper.sh", namespace)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		if err := cmd.Run(); ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench: the home-made reaper ended:", err)
		}
	})
	return func() {
		stop()
		running.Wait()
	}
}
