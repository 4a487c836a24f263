// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import "testing"

func TestCommit(t *testing.T) {
	if Commit() == "" {
		t.Error("The commit is empty; it must be unknown at least")
	}
	defer func(before string) { Revision = before }(Revision)
	Revision = "abc"
	if got := Commit(); got != "abc" {
		t.Errorf("Got %q, want what the linker set", got)
	}
}
