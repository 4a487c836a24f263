// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what Kubernetes releases do not have in common, as far as tests depend on it.

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"
)

// Feature is a part of Kubernetes that older releases lack. The zero Feature is in all of them. The minor versions are those of
// the gate in Kubernetes' own pkg/features.
type Feature struct {
	what string
	gate string
	// since is the first minor version of 1 that knows the gate, byDefault the first in which it is on.
	since, byDefault uint
	// wanted: the gate is turned on where it is not on by default. Otherwise such a release counts as without.
	wanted bool
}

var (
	// NativeSidecars are init containers with restartPolicy Always. Without them the API server drops the field.
	NativeSidecars = Feature{what: "native sidecars", gate: "SidecarContainers", since: 28, byDefault: 29, wanted: true}
	// RestartRules are a container's own restartPolicy and restartPolicyRules. Without them the API server drops the fields.
	RestartRules = Feature{what: "restartPolicyRules", gate: "ContainerRestartRules", since: 34, byDefault: 35, wanted: true}
	// WebSocketPortForward is pods/portforward by WebSocket. It stays as the release has it, as do the next two.
	WebSocketPortForward = Feature{what: "port-forward by WebSocket", gate: "PortForwardWebsockets", since: 30, byDefault: 31}
	// WebSocketExec is pods/exec by the WebSocket protocol that tells how the command ended.
	WebSocketExec = Feature{what: "exec by WebSocket", gate: "TranslateStreamCloseWebsocketRequests", since: 29, byDefault: 30}
	// WebSocketNeedsCreate is the demand of the verb create, beside get, from those who upgrade to WebSocket.
	WebSocketNeedsCreate = Feature{
		what: "the demand of create for a WebSocket", gate: "AuthorizePodWebsocketUpgradeCreatePermission", since: 35, byDefault: 35,
	}
)

// Features returns every Feature that is not in all releases.
func Features() []Feature {
	return []Feature{NativeSidecars, RestartRules, WebSocketPortForward, WebSocketExec, WebSocketNeedsCreate}
}

// String is what the feature is called where people read it.
func (f Feature) String() string { return f.what }

// Gate is the name of the feature's gate.
func (f Feature) Gate() string { return f.gate }

// GatedIn says whether the cluster had to turn the feature's gate on to have it.
func (f Feature) GatedIn(release *version.Version) bool {
	return f.wanted && release.Minor() >= f.since && release.Minor() < f.byDefault
}

// MissingFrom returns "" where a cluster of a release has the feature, or else why not.
func (f Feature) MissingFrom(release *version.Version) string {
	minor := release.Minor()
	switch {
	case minor < f.since:
		return fmt.Sprintf("Kubernetes 1.%d lacks %s, which came with 1.%d", minor, f.what, f.since)
	case minor < f.byDefault && !f.wanted:
		return fmt.Sprintf("Kubernetes 1.%d has %s behind a gate that is off until 1.%d", minor, f.what, f.byDefault)
	}
	return ""
}

// Version is the release that the cluster runs.
func (c *Cluster) Version() *version.Version { return c.version }

// Lacks returns "" where the cluster has a feature, or else why not: a test's reason to skip.
func (c *Cluster) Lacks(f Feature) string { return f.MissingFrom(c.version) }

// releaseOf asks a kube-apiserver which release it is.
func releaseOf(ctx context.Context, assets string) (*version.Version, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(assets, "kube-apiserver"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking kube-apiserver for its version: %w", err)
	}
	fields := bytes.Fields(out) // Kubernetes v1.37.2
	if len(fields) == 0 {
		return nil, fmt.Errorf("kube-apiserver does not tell its version: %q", out)
	}
	return version.ParseSemantic(string(fields[len(fields)-1]))
}

// gates returns the flags that turn on what tests want of a release. The flags are each component's, for some gates must be on in more
// than one: a scheduler with SidecarContainers off leaves pods with native sidecars pending.
func gates(release *version.Version) []string {
	var flags []string
	for _, f := range Features() {
		if f.GatedIn(release) {
			flags = append(flags, "--feature-gates="+f.gate+"=true")
		}
	}
	return flags
}
