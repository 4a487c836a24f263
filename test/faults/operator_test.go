// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The operator under test: its binary as a process of its own, and what can be seen of it from outside.

package faults

import (
	"bytes"
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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// process is one replica of the operator.
type process struct {
	cmd     *exec.Cmd
	metrics string // address
	probes  string // address
	exited  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// startOperator starts a replica that reaches the API server as config says. It is killed when the test ends.
func (s *stage) startOperator(t *testing.T, config *rest.Config, flags ...string) *process {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.cluster.Kubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	p := &process{metrics: freeAddress(t), probes: freeAddress(t), exited: make(chan struct{})}
	p.cmd = exec.Command(manager, append([]string{
		"--kubeconfig=" + kubeconfig, "--metrics-bind-address=" + p.metrics, "--health-probe-bind-address=" + p.probes,
	}, flags...)...)
	// What the user's shell sets for another operator is not for this one.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "JOBMESH_") })
	p.cmd.Stderr = p
	p.cmd.SysProcAttr = processAttributes()

	started := make(chan error)
	go func() {
		// Linux ends the child with the thread that started it: so this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("The end of the operator's log (go test -artifacts keeps it whole):\n%s", p.tail())
			p.keepLog(t)
		}
	})
	return p
}

// Write takes the log.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

// logged tells whether the log holds a text.
func (p *process) logged(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(bytes.ToLower(p.log.Bytes()), []byte(strings.ToLower(text)))
}

// keepLog writes the log to where -artifacts keeps it.
func (p *process) keepLog(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("operator-%d.log", p.cmd.Process.Pid)
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), p.log.Bytes(), 0o600); err != nil {
		t.Log(err)
	}
}

func (p *process) tail() string {
	const lines = 30
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// running fails the test where the replica has ended.
func (p *process) running(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Fatalf("The operator ended: %v", p.cmd.ProcessState)
	default:
	}
}

// waitReady waits until the replica is ready.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, soon, "the operator to be ready", func() error {
		p.running(t)
		return p.ready(t.Context())
	})
}

func (p *process) ready(ctx context.Context) error {
	_, err := get(ctx, "http://"+p.probes+"/readyz")
	return err
}

// end sends a signal and waits for the end.
func (p *process) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(soon):
		t.Fatalf("The operator runs on after signal %v", signal)
	}
}

// metric sums the series of a metric that hold all the given texts, such as `outcome="accepted"`.
func (p *process) metric(ctx context.Context, name string, with ...string) (float64, error) {
	text, err := get(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	var sum float64
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if labelled, _, _ := strings.Cut(series, "{"); labelled != name {
			continue
		}
		if slices.ContainsFunc(with, func(label string) bool { return !strings.Contains(series, label) }) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += number
	}
	return sum, nil
}

// leads tells whether the replica holds the lease.
func (p *process) leads(ctx context.Context) bool {
	value, err := p.metric(ctx, "leader_election_master_status")
	return err == nil && value == 1
}

// level is what a leak would show in.
type level struct {
	goroutines int
	sockets    int // open ones, listening ones included; -1 where the system does not tell
}

// levelOf measures a replica: the median of some looks, because a look itself is a connection.
func (p *process) levelOf(ctx context.Context) (level, error) {
	var goroutines, sockets []int
	for range 5 {
		n, err := p.metric(ctx, "go_goroutines")
		if err != nil {
			return level{}, err
		}
		goroutines = append(goroutines, int(n))
		sockets = append(sockets, p.sockets())
		select {
		case <-ctx.Done():
			return level{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	slices.Sort(goroutines)
	slices.Sort(sockets)
	return level{goroutines[2], sockets[2]}, nil
}

// sockets counts the open sockets of the process, as Linux tells.
func (p *process) sockets() int {
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	n := 0
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// near tells whether two levels are as good as the same.
func (l level) near(idle level) error {
	const slack = 10
	if d := l.goroutines - idle.goroutines; d > slack || d < -slack {
		return fmt.Errorf("%d goroutines, idle were %d", l.goroutines, idle.goroutines)
	}
	if d := l.sockets - idle.sockets; d > slack || d < -slack {
		return fmt.Errorf("%d open sockets, idle were %d", l.sockets, idle.sockets)
	}
	return nil
}

// withoutKeepAlive leaves no connection behind that would count.
var withoutKeepAlive = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := withoutKeepAlive.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// freeAddress is a loopback address that nobody listens on, for now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// says returns an error where the log holds none of the texts.
func (p *process) says(texts ...string) error {
	if slices.ContainsFunc(texts, p.logged) {
		return nil
	}
	return fmt.Errorf("the log says none of %q", texts)
}

// alive asks what the kubelet asks before it restarts a container.
func (p *process) alive(ctx context.Context) error {
	_, err := get(ctx, "http://"+p.probes+"/healthz")
	return err
}
