// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The exec, and which of its ends means what.

package quit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"
)

func exits(code int) command {
	return func(_ []string, _ string, stdout, stderr io.Writer) error {
		_, _ = io.WriteString(stdout, "OK "+tenant)
		_, _ = io.WriteString(stderr, tenant)
		if code == 0 {
			return nil
		}
		return utilexec.CodeExitError{Err: errors.New(tenant), Code: code}
	}
}

func TestExec(t *testing.T) {
	cases := map[string]struct {
		command      command
		front        front
		kubeletFront front
		timeout      time.Duration
		want         Outcome
		wantErr      error
		wantProtocol Protocol
	}{
		"exit 0": {command: exits(0), want: OutcomeAccepted},
		"exit 0 after much output": {
			command: func(_ []string, _ string, stdout, stderr io.Writer) error {
				for range 20 {
					_, _ = io.WriteString(stdout, strings.Repeat(tenant, 1000))
					_, _ = io.WriteString(stderr, strings.Repeat(tenant, 1000))
				}
				return nil
			},
			want: OutcomeAccepted,
		},
		"exit 1":                 {command: exits(1), want: OutcomeRejected},
		"exit 126":               {command: exits(126), want: OutcomeRejected},
		"killed with its proxy":  {command: exits(137), want: OutcomeUnknown},
		"no such binary":         {command: cannot("exec: \"" + tenant + "\": executable file not found in $PATH"), want: OutcomeError},
		"container gone":         {command: cannot("container not found " + tenant), want: OutcomeError, wantErr: ErrPodGone},
		"an error without bound": {command: cannot(strings.Repeat(tenant, 10000)), want: OutcomeError},
		"never ends": {
			command: func(_ []string, _ string, stdout, _ io.Writer) error {
				var err error
				for end := time.Now().Add(2 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
					_, err = io.WriteString(stdout, tenant)
				}
				return nil
			},
			timeout: 200 * time.Millisecond, want: OutcomeTimeout,
		},
		"hang at the upgrade":     {front: hangs(""), timeout: 200 * time.Millisecond, want: OutcomeTimeout},
		"RBAC":                    {front: always(status(403)), want: OutcomeError, wantErr: ErrNotAllowed},
		"no such pod":             {front: always(status(404)), want: OutcomeError, wantErr: ErrPodGone},
		"container not running":   {kubeletFront: always(plain(500, "container not running ("+tenant+")")), want: OutcomeError, wantErr: ErrPodGone},
		"no WebSocket":            {front: onWebSocket(plain(400, "")), command: exits(0), want: OutcomeAccepted, wantProtocol: ProtocolSPDY},
		"old server's WebSocket":  {front: onWebSocket(plain(403, "")), command: exits(0), want: OutcomeAccepted, wantProtocol: ProtocolSPDY},
		"connection cut at first": {front: ends(""), want: OutcomeError},
	}
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		t.Run(string(first), func(t *testing.T) {
			c := newCluster(t)
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					c.set(func(c *cluster) { c.command, c.front, c.kubeletFront = tc.command, tc.front, tc.kubeletFront })
					timeout := tc.timeout
					if timeout == 0 {
						timeout = 10 * time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					got := c.client(first).Exec(ctx, Target{Namespace: "team-a", Pod: "job-1", Container: "istio-proxy"})
					checkResult(t, got, tc.want, tc.wantErr)
					if tc.wantProtocol != "" && got.Protocol != tc.wantProtocol {
						t.Errorf("protocol %s, want %s", got.Protocol, tc.wantProtocol)
					}
					if late := got.Duration - timeout; late > time.Second {
						t.Errorf("ended %v after its deadline", late)
					}
					c.waitClosed()
				})
			}
		})
	}
}

func cannot(text string) command {
	return func([]string, string, io.Writer, io.Writer) error { return errors.New(text) }
}

// The command is the one of the images: no shell, no curl, in the container that was named.
func TestExecRunsPilotAgent(t *testing.T) {
	c := newCluster(t)
	got := make(chan string, 2)
	c.set(func(c *cluster) {
		c.command = func(cmd []string, container string, _, _ io.Writer) error {
			got <- fmt.Sprint(container, cmd)
			return nil
		}
	})
	for _, first := range []Protocol{ProtocolWebSocket, ProtocolSPDY} {
		r := c.client(first).Exec(t.Context(), Target{Namespace: "team-a", Pod: "job-1", Container: "istio-proxy"})
		if r.Outcome != OutcomeAccepted || r.Route != RouteExec || r.Protocol != first {
			t.Errorf("got %+v", r)
		}
		if cmd, want := <-got, "istio-proxy[pilot-agent request POST quitquitquit]"; cmd != want {
			t.Errorf("ran %q, want %q", cmd, want)
		}
	}
}

// Every outcome is one of those that callers prepare for.
func TestOutcomes(t *testing.T) {
	for name, tc := range portForwardCases {
		if !slices.Contains(Outcomes(), tc.want) {
			t.Errorf("%s: %s is no outcome", name, tc.want)
		}
	}
	for _, o := range Outcomes() {
		if got, want := o.Asked(), o == OutcomeAccepted || o == OutcomeUnknown; got != want {
			t.Errorf("%s.Asked() = %v", o, got)
		}
	}
}
