// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a test may do to a running control plane: kill a component, start it again, compact etcd.

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
)

// maxAnswer bounds what is read of an answer of etcd.
const maxAnswer = 1 << 20

// Kill ends a component ("etcd", "kube-apiserver", …) by SIGKILL, as a crash does. Neither Kill nor Restart may run beside Stop.
func (c *Cluster) Kill(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", component, err)
	}
	<-p.exited
	return nil
}

// Restart starts a component that was killed with the command line that it had, so on the same port and with the same data, and
// waits until the API server answers. Its log begins anew.
func (c *Cluster) Restart(ctx context.Context, component string) error {
	old, err := c.process(component)
	if err != nil {
		return err
	}
	select {
	case <-old.exited:
	default:
		return fmt.Errorf("%s still runs", component)
	}
	p, err := c.run(filepath.Dir(old.cmd.Path), component, old.cmd.Args[1:])
	if err != nil {
		return err
	}
	c.processes = slices.DeleteFunc(c.processes, func(other *process) bool { return other == old })
	if err := c.waitReady(ctx, p); err != nil {
		return fmt.Errorf("restarting %s: %w", component, err)
	}
	return nil
}

// Compact drops the history that etcd keeps, up to now, and returns the revision that it goes up to. Who resumes a watch from an earlier
// one is told that it is too old, unless the API server has it in a cache of its own.
func (c *Cluster) Compact(ctx context.Context) (revision int64, err error) {
	var status struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if err := c.askEtcd(ctx, "maintenance/status", struct{}{}, &status); err != nil {
		return 0, err
	}
	revision = status.Header.Revision
	return revision, c.askEtcd(ctx, "kv/compaction", map[string]any{"revision": fmt.Sprint(revision), "physical": true}, &struct{}{})
}

// askEtcd makes one call by etcd's JSON gateway.
func (c *Cluster) askEtcd(ctx context.Context, call string, question, answer any) error {
	etcd, err := c.process("etcd")
	if err != nil {
		return err
	}
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd.flag("--listen-client-urls")+"/v3/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading etcd's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking etcd for %s: %s: %s", call, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

func (c *Cluster) process(name string) (*process, error) {
	for _, p := range c.processes {
		if p.name == name {
			return p, nil
		}
	}
	return nil, errors.New("the cluster runs no " + name)
}

// flag returns the value of a flag on the command line.
func (p *process) flag(name string) string {
	for _, argument := range p.cmd.Args {
		if value, ok := strings.CutPrefix(argument, name+"="); ok {
			return value
		}
	}
	return ""
}
