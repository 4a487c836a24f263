// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the operator's process: its binary, with the rights of its own ServiceAccount.

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	operatorBinary = "bin/manager"
	// operatorGrace is more than the operator takes to end the attempts under way.
	operatorGrace = 8 * time.Second
)

// process is the running operator.
type process struct {
	cmd     *exec.Cmd
	metrics string // URL
	exited  chan struct{}
	err     error // of the exit; read it after exited is closed
}

// startOperator starts the binary and waits until it is ready. Each line of its log goes to the file and to heard.
func startOperator(ctx context.Context, kubeconfig, logFile string, heard func(line []byte)) (*process, error) {
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	probes, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	p := &process{metrics: "http://" + metrics + "/metrics", exited: make(chan struct{})}
	p.cmd = exec.Command(operatorBinary, "--kubeconfig="+kubeconfig, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+probes)
	// What the user's shell sets for another operator is not for this one.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "JOBMESH_") })
	p.cmd.SysProcAttr = processAttributes()
	output, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}

	started := make(chan error)
	go func() {
		// Linux ends the child with the thread that started it: so this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		defer func() { _ = log.Close() }()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewReader(output); ; {
			line, err := lines.ReadBytes('\n')
			heard(line)
			_, _ = log.Write(line)
			if err != nil {
				break
			}
		}
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s, which `make build` makes: %w", operatorBinary, err)
	}
	if err := p.waitReady(ctx, "http://"+probes+"/readyz"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the operator did not become ready"))
	defer cancel()
	for {
		if _, err := get(ctx, url); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.exited:
			return fmt.Errorf("the operator ended: %w", p.err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ownMetrics reads the operator's metrics as Prometheus does, and returns the series of the given names.
func (p *process) ownMetrics(ctx context.Context, names ...string) ([]string, error) {
	text, err := get(ctx, p.metrics)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	var series []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "{")
		if slices.Contains(names, name) {
			series = append(series, strings.TrimSpace(line))
		}
	}
	return series, nil
}

// stop ends the operator as Kubernetes would.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(operatorGrace):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	if p.err != nil {
		return fmt.Errorf("the operator ended: %w", p.err)
	}
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// freeAddress is a loopback address that nobody listens on, for now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
