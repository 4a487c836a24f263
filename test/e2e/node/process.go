// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the node's own daemons, started with a log file each, and the waiting for them.

package node

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

type process struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{}
}

// run starts a daemon. It ends with the namespaces.
func (n *Node) run(path string, args ...string) (*process, error) {
	name := filepath.Base(path)
	p := &process{name: name, log: filepath.Join(n.config.LogDir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = n.config.Dir
	// containerd looks for its shim beside itself only by PATH.
	p.cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
		_ = log.Close()
	}()
	return p, nil
}

// failure is the error of a daemon that ended by itself: it quotes the end of its log.
func (p *process) failure() error {
	const lines = 5
	log, err := os.ReadFile(p.log)
	if err != nil {
		log = []byte(err.Error())
	}
	tail := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return fmt.Errorf("%s ended: %s", p.name, bytes.Join(tail[max(0, len(tail)-lines):], []byte("\n")))
}

// poll asks until done says so, a daemon ends, or the time is up.
func poll(ctx context.Context, within time.Duration, processes []*process, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := done()
		if err == nil {
			return nil
		}
		for _, p := range processes {
			select {
			case <-p.exited:
				return p.failure()
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
