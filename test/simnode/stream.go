// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what port-forward and exec reach in a Pod, in a container runtime's words where they fail.

package simnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// forwarder forwards to one Pod for one connection.
type forwarder struct {
	ctx  context.Context // ends with the connection
	node *Node
	pod  *pod
}

// PortForward dials the Pod's loopback from the Pod's loopback and copies both ways until one side ends, then for up to
// a second more, as containerd does.
func (f *forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	counters := &f.node.fleet.counters
	counters.dials.Add(1)
	counters.openDials.Add(1)
	defer counters.openDials.Add(-1)
	switch Fault(f.node.fault.Load()) {
	case FaultHangAfterUpgrade:
		f.node.blocked(f.ctx)
		return errors.New("simulated")
	case FaultSilentSuccess:
		// Data that nobody reads would keep the connection from ever closing.
		f.node.fleet.running.Go(func() { _, _ = io.Copy(io.Discard, stream) })
		return nil
	}
	if err := f.pod.sandboxError(); err != nil {
		return err
	}
	if f.pod.floods() {
		return errFlooded
	}
	conn, err := f.dial(port)
	if err != nil {
		counters.dialsRefused.Add(1)
		return err
	}
	defer func() { _ = conn.Close() }()

	ended := make(chan error, 2)
	go func() { _, err := io.Copy(stream, conn); ended <- err }()
	go func() { _, err := io.Copy(conn, stream); ended <- err }()
	select {
	case err = <-ended:
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
	select {
	case second := <-ended:
		if err == nil {
			err = second
		}
	case <-time.After(time.Second):
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
	return err
}

func (f *forwarder) dial(port int32) (net.Conn, error) {
	p := f.pod
	namespace := "/var/run/netns/cni-" + p.uid
	if p.hostNetwork {
		f.node.fleet.counters.hostNetwork.Add(1)
		return nil, errors.New(`failed to execute portforward in network namespace "host": a simulated node has no services`)
	}
	address := net.ParseIP(p.ip)
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: address}}
	conn, err := dialer.DialContext(f.ctx, "tcp4", net.JoinHostPort(p.ip, strconv.Itoa(int(port))))
	if err != nil {
		// Inside a real Pod the address would be 127.0.0.1.
		cause := errors.Unwrap(err)
		return nil, fmt.Errorf("failed to execute portforward in network namespace %q: failed to connect to localhost:%d "+
			"inside namespace %q, IPv4: dial tcp4 127.0.0.1:%d: %v IPv6 dial tcp6 [::1]:%d: %v ",
			namespace, port, p.uid, port, cause, port, cause)
	}
	return conn, nil
}

// sandboxError is what the runtime says of a Pod without a running sandbox, or nil.
func (p *pod) sandboxError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.startTime.IsZero():
		return fmt.Errorf("failed to find sandboxID for pod %q", p.key)
	case p.finished:
		return fmt.Errorf("rpc error: code = Unknown desc = sandbox container %q is not running", p.uid)
	default:
		return nil
	}
}

// floods tells whether the runtime is to drown whoever asks for this Pod in words.
func (p *pod) floods() bool {
	return slices.ContainsFunc(p.apps, func(c *container) bool { return c.proxy && c.proxied.Behaviour == BehaviourErrorFlood })
}

// executor runs commands in one Pod's containers.
type executor struct{ pod *pod }

var quitCommand = []string{"pilot-agent", "request", "POST", "quitquitquit"}

// ExecInContainer knows one command, pilot-agent's request to Envoy's admin port, which no status port setting closes:
// Envoy exits, and the agent with it.
func (e executor) ExecInContainer(_ context.Context, _, _, container string, command []string, _ io.Reader,
	stdout, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	p := e.pod
	p.mu.Lock()
	c := p.container(container)
	attempt, proxy := c.attempts, c.proxy
	p.mu.Unlock()
	if len(command) == 0 || command[0] != quitCommand[0] || !proxy {
		return fmt.Errorf("failed to exec in container: failed to start exec: OCI runtime exec failed: exec failed: unable "+
			"to start container process: exec: %q: executable file not found in $PATH: unknown", slices.Concat(command, []string{""})[0])
	}
	if !slices.Equal(command, quitCommand) {
		return fmt.Errorf("failed to exec in container: %q is not simulated", command)
	}
	p.fleet.counters.byExec.Add(1)
	p.noteQuit()
	if stdout != nil {
		if _, err := io.WriteString(stdout, "OK\n"); err != nil {
			return err
		}
	}
	// The process ends after the command that asked it to.
	if c.proxied.Behaviour != BehaviourNeverExits {
		p.exitAfter(c, attempt, 0, 10*time.Millisecond)
	}
	return nil
}

// execError is what the kubelet says where a command cannot be run at all, or nil.
func (p *pod) execError(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.container(name); c == nil || c.attempts == 0 {
		return fmt.Errorf("container not found (%q)", name)
	} else if c.state != running {
		return errors.New("rpc error: code = Unknown desc = failed to exec in container: container is in CONTAINER_EXITED state")
	}
	return nil
}

// container finds a container by name. The caller holds mu.
func (p *pod) container(name string) *container {
	for _, c := range p.all() {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}
