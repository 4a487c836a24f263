// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the child processes: started with a log file, ended with the program that started them.

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// errExited marks a component that ended while it was waited for.
var errExited = errors.New("exited")

// stopGrace is how long a component may take to end by itself. Nothing of its state is kept, so it is short.
const stopGrace = time.Second

type process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// run starts a component and remembers it for Stop.
func (c *Cluster) run(assets, name string, flags []string) (*process, error) {
	p := &process{name: name, log: filepath.Join(c.logDir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(filepath.Join(assets, name), flags...)
	p.cmd.Dir = c.dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = processAttributes()

	started := make(chan error)
	go func() {
		// Linux sends the parent-death signal when the thread that forked ends, not the program: so this thread stays
		// until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		defer func() { _ = log.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.processes = append(c.processes, p)
	return p, nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return
	case <-time.After(stopGrace):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// failure is the error of a component that ended by itself: it quotes the end of its log.
func (p *process) failure() error {
	const lines = 5
	log, err := os.ReadFile(p.log)
	if err != nil {
		log = []byte(err.Error())
	}
	tail := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	tail = tail[max(0, len(tail)-lines):]
	return fmt.Errorf("%s %w: %s", p.name, errExited, bytes.Join(tail, []byte("\n")))
}
