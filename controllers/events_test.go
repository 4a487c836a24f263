// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A storm of one type of event is bounded, and leaves room for the other.

package controllers

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		heard := events.NewFakeRecorder(10_000)
		bounded := NewBoundedEvents(heard)
		done := make(chan error)
		go func() { done <- bounded.Start(ctx) }()
		count := func() map[string]int {
			synctest.Wait()
			count := map[string]int{}
			for range len(heard.Events) {
				count[strings.Fields(<-heard.Events)[0]]++
			}
			return count
		}
		for range 5000 {
			bounded.Eventf(stuck("pod").Obj(), nil, corev1.EventTypeNormal, "Reaped", "Quit", "reaped %d", 1)
		}
		bounded.Eventf(stuck("pod").Obj(), nil, corev1.EventTypeWarning, "Blocked", "Decide", "blocked")
		if got := count(); got[corev1.EventTypeNormal] != eventsAtOnce || got[corev1.EventTypeWarning] != 1 {
			t.Errorf("At once: %v, want %d normal ones and the warning", got, eventsAtOnce)
		}
		time.Sleep(10*time.Second + 10*time.Millisecond)
		if got := count(); got[corev1.EventTypeNormal] != 10*eventsPerSecond {
			t.Errorf("Within ten seconds: %v, want %d", got, 10*eventsPerSecond)
		}
		time.Sleep(time.Hour)
		// One may be on its way while the others wait.
		if got := count()[corev1.EventTypeNormal] + eventsAtOnce + 10*eventsPerSecond; got < eventsWaiting || got > eventsWaiting+eventsAtOnce+1 {
			t.Errorf("%d in all, want about %d", got, eventsWaiting)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
