// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the operator's process: its binary, with the arguments and the environment of the shipped Deployment and the
// rights of its ServiceAccount.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

const (
	deploymentFile = "config/manager/manager.yaml"
	// operatorGrace is more than the operator takes to end the attempts under way.
	operatorGrace = 10 * time.Second
)

// process is a running operator.
type process struct {
	cmd     *exec.Cmd
	metrics string // URL
	profile string // URL of the heap's profile after a collection, "" where the binary cannot
	began   time.Time
	exited  chan struct{}
	err     error // of the exit; read it after exited is closed
	ready   string

	goroutines string // the file for the goroutines of the worst sample, "" for none
	worst      int

	mu      sync.Mutex
	samples []sample
	watched sync.WaitGroup
}

// shippedSettings reads what the Deployment gives to the operator.
func shippedSettings() (args, env []string, err error) {
	text, err := os.ReadFile(deploymentFile)
	if err != nil {
		return nil, nil, err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			return nil, nil, err
		}
		if d.Kind != "Deployment" || len(d.Spec.Template.Spec.Containers) == 0 {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				env = append(env, e.Name+"="+e.Value)
			}
		}
		return c.Args, env, nil
	}
	return nil, nil, fmt.Errorf("%s holds no Deployment", deploymentFile)
}

// startOperator starts the binary and begins to watch it. It does not wait until it is ready.
func (r *rig) startOperator() error {
	p, err := startProcess(r.operator, r.kubeconfig(), r.logDir())
	if err != nil {
		return fmt.Errorf("starting %s, which `make build` makes: %w", r.operator, err)
	}
	r.running = p
	if r.profile && p.profile != "" {
		p.goroutines = filepath.Join(r.logDir(), "operator.goroutines")
	}
	p.watched.Go(p.watch)
	return nil
}

// startIdleOperator starts the operator and waits until it has settled.
func (r *rig) startIdleOperator(ctx context.Context) (idle, error) {
	if err := r.startOperator(); err != nil {
		return idle{}, err
	}
	if err := r.awaitReady(ctx); err != nil {
		return idle{}, err
	}
	if err := sleep(ctx, settle); err != nil {
		return idle{}, err
	}
	level := r.running.level()
	r.say("the operator runs and is idle: %d goroutines, %d sockets, %.1f MiB resident", level.goroutines, level.sockets, level.rss)
	return level, nil
}

func (r *rig) awaitReady(ctx context.Context) error {
	return r.eventually(ctx, "the operator to be ready", func() (bool, error) {
		_, err := get(ctx, r.running.ready)
		return err == nil, err
	})
}

func (r *rig) stopOperator() error {
	p := r.running
	r.running = nil
	return p.stop()
}

func startProcess(binary, kubeconfig, logs string) (*process, error) {
	args, env, err := shippedSettings()
	if err != nil {
		return nil, err
	}
	var addresses []string
	for range 3 {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	// The last of two flags wins.
	args = append(args, "--kubeconfig="+kubeconfig, "--leader-election-namespace="+operatorNamespace,
		"--metrics-bind-address="+addresses[0], "--health-probe-bind-address="+addresses[1])
	p := &process{
		metrics: "http://" + addresses[0] + "/metrics", ready: "http://" + addresses[1] + "/readyz", exited: make(chan struct{}),
	}
	if help, err := exec.Command(binary, "--help").Output(); err != nil {
		return nil, err
	} else if strings.Contains(string(help), "--pprof-bind-address") {
		args = append(args, "--pprof-bind-address="+addresses[2])
		p.profile = "http://" + addresses[2] + "/debug/pprof/heap?gc=1&debug=1"
	}
	log, err := os.OpenFile(filepath.Join(logs, "operator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(binary, args...)
	// What the user's shell sets for another operator is not for this one.
	p.cmd.Env = slices.Concat(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "JOBMESH_") || strings.HasPrefix(v, "GO")
	}), env)
	p.cmd.SysProcAttr = processAttributes()
	p.cmd.Stdout, p.cmd.Stderr = log, log

	started := make(chan error)
	go func() {
		// Linux ends the child with the thread that started it: so this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		defer func() { _ = log.Close() }()
		p.began = time.Now()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	return p, <-started
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
	p.watched.Wait()
	if p.err != nil {
		return fmt.Errorf("the operator ended: %w", p.err)
	}
	return nil
}

// scrapes get a client without connections that stay, so that the watch itself costs the operator no socket for long.
var scrapes = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := scrapes.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
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
