// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A storm of one type of event leaves room for the other.

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestEventsAreBounded(t *testing.T) {
	heard := events.NewFakeRecorder(10_000)
	bounded := NewBoundedEvents(heard)
	for range 5000 {
		bounded.Eventf(stuck("pod").Obj(), nil, corev1.EventTypeNormal, "Reaped", "Quit", "reaped %d", 1)
	}
	bounded.Eventf(stuck("pod").Obj(), nil, corev1.EventTypeWarning, "Blocked", "Decide", "blocked")
	close(heard.Events)
	count := map[string]int{}
	for e := range heard.Events {
		count[strings.Fields(e)[0]]++
	}
	// Those of a second or two may come on top.
	if n := count[corev1.EventTypeNormal]; n < eventBurst || n > eventBurst+10*eventsPerSecond {
		t.Errorf("%d normal events, want about %d", n, eventBurst)
	}
	if count[corev1.EventTypeWarning] != 1 {
		t.Errorf("%d warnings, want 1", count[corev1.EventTypeWarning])
	}
}
