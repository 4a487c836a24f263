// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves that each release is met as it is.

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
)

func TestReleases(t *testing.T) {
	for release, tc := range map[string]struct {
		wantGates   []string
		wantMissing []Feature
	}{
		"1.28.15": {
			wantGates:   []string{"--feature-gates=SidecarContainers=true"},
			wantMissing: []Feature{RestartRules, WebSocketPortForward, WebSocketExec, WebSocketNeedsCreate},
		},
		"1.29.0":  {wantMissing: []Feature{RestartRules, WebSocketPortForward, WebSocketExec, WebSocketNeedsCreate}},
		"1.30.0":  {wantMissing: []Feature{RestartRules, WebSocketPortForward, WebSocketNeedsCreate}},
		"1.31.14": {wantMissing: []Feature{RestartRules, WebSocketNeedsCreate}},
		"1.34.4": {
			wantGates:   []string{"--feature-gates=ContainerRestartRules=true"},
			wantMissing: []Feature{WebSocketNeedsCreate},
		},
		"1.35.0": {},
		"1.37.2": {},
	} {
		t.Run(release, func(t *testing.T) {
			v := version.MustParseSemantic(release)
			if diff := cmp.Diff(tc.wantGates, gates(v)); diff != "" {
				t.Errorf("The flags differ (-want +got):\n%s", diff)
			}
			var missing []Feature
			for _, f := range Features() {
				if f.MissingFrom(v) != "" {
					missing = append(missing, f)
				}
			}
			if diff := cmp.Diff(tc.wantMissing, missing, cmp.AllowUnexported(Feature{})); diff != "" {
				t.Errorf("The missing features differ (-want +got):\n%s", diff)
			}
			if why := (Feature{}).MissingFrom(v); why != "" {
				t.Errorf("No feature is missing: %s", why)
			}
		})
	}
}
