// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What attempts say of a node reaches those who hand out its places.

package controllers

import (
	"testing"

	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/slots"
)

func TestANodeThatDoesNotAnswerGetsOneAtATime(t *testing.T) {
	b := enforcing(t, stuck("a").Obj(), stuck("b").Obj(), stuck("c").Obj())
	b.quitter.outcomes = []quit.Outcome{quit.OutcomeTimeout}
	for _, name := range []string{"a", "b", "c"} {
		b.reconcile(name)
	}
	at := slots.Spot{Node: stuck("a").Obj().Spec.NodeName, Namespace: "default"}
	if !b.slots.Acquire(at, requestFor("x")) || b.slots.Acquire(at, requestFor("y")) {
		t.Error("A node that left three attempts unanswered does not get one place")
	}
}
