// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Remarks for a person.

package verdict

import (
	"slices"
	"testing"

	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestAnIgnoredContainerThatRunsOnIsNoted(t *testing.T) {
	const want = `The ignored container "logs" still runs; the pod ends when it does.`
	settings := policy.Settings{Mode: "Enforce", IgnoredContainers: []string{"logs"}}
	quit := build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)).App("logs", build.Running()).Obj()
	if notes := Decide(Input{Pod: quit, Settings: settings, Now: build.FinishedAt}).Notes; !slices.Contains(notes, want) {
		t.Errorf("The notes are %q", notes)
	}
	stuck := build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running()).App("logs", build.Running()).Obj()
	if notes := Decide(Input{Pod: stuck, Settings: settings, Now: build.FinishedAt}).Notes; len(notes) != 0 {
		t.Errorf("While the proxy runs the notes are %q", notes)
	}
}
