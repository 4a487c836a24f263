// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version holds what the build says of itself.
package version

import "runtime/debug"

// Set by the linker (-X).
var (
	// Version is the release, such as v0.1.0.
	Version = "dev"
	// Revision is the commit it was built from.
	Revision = ""
)

// Commit returns Revision, or what the Go command recorded, or "unknown".
func Commit() string {
	if Revision != "" {
		return Revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
