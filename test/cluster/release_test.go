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
		wantMissing []string
	}{
		"1.28.15": {
			wantGates:   []string{"--feature-gates=SidecarContainers=true"},
			wantMissing: []string{"restartPolicyRules", "port-forward by WebSocket", "the demand of create for a WebSocket"},
		},
		"1.29.0":  {wantMissing: []string{"restartPolicyRules", "port-forward by WebSocket", "the demand of create for a WebSocket"}},
		"1.30.0":  {wantMissing: []string{"restartPolicyRules", "port-forward by WebSocket", "the demand of create for a WebSocket"}},
		"1.31.14": {wantMissing: []string{"restartPolicyRules", "the demand of create for a WebSocket"}},
		"1.34.4": {
			wantGates:   []string{"--feature-gates=ContainerRestartRules=true"},
			wantMissing: []string{"the demand of create for a WebSocket"},
		},
		"1.35.0": {},
		"1.37.2": {},
	} {
		t.Run(release, func(t *testing.T) {
			v := version.MustParseSemantic(release)
			if diff := cmp.Diff(tc.wantGates, gates(v)); diff != "" {
				t.Errorf("The flags differ (-want +got):\n%s", diff)
			}
			var missing []string
			for _, f := range Features() {
				if f.MissingFrom(v) != "" {
					missing = append(missing, f.String())
				}
			}
			if diff := cmp.Diff(tc.wantMissing, missing); diff != "" {
				t.Errorf("The missing features differ (-want +got):\n%s", diff)
			}
			if why := (Feature{}).MissingFrom(v); why != "" {
				t.Errorf("No feature is missing: %s", why)
			}
		})
	}
}
