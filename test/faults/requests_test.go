// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Faults of single requests: an API server that fails some, ends watches, or refuses one kind of write.

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// silent swallows what net/http would log about connections that are cut on purpose.
var silent = log.New(io.Discard, "", 0)

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: "broken on purpose",
	})
}

// TestATenthOfRequestsFails has one request of ten fail, upgrades, events and watches included, in one of five ways.
func TestATenthOfRequestsFails(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, 2))
	roll := func() (fails bool, how int) {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(10) == 0, dice.IntN(5)
	}
	var failed atomic.Int64
	play(t, shared, fault{
		title: "failing requests", effect: "one request of ten gets 500, 429, 503, no answer, or half of one",
		connect: g.connect, hold: 20 * time.Second, off: g.end,
		on: g.begin(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			fails, how := roll()
			if !fails {
				pass.ServeHTTP(w, r)
				return
			}
			failed.Add(1)
			switch how {
			case 0:
				refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
			case 1:
				refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			case 2:
				http.Error(w, "no backend", http.StatusServiceUnavailable) // a load balancer's answer
			case 3:
				panic(http.ErrAbortHandler)
			default: // the API server has acted, and nobody is told
				pass.ServeHTTP(&halved{ResponseWriter: w}, r)
			}
		}),
		after: func(t *testing.T, _ *work, _ *process) {
			if failed.Load() == 0 {
				t.Error("No request failed")
			}
			t.Logf("%d requests failed", failed.Load())
		},
	})
}

// halved cuts the connection at the first byte of the body.
type halved struct{ http.ResponseWriter }

func (h *halved) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// Unwrap lets an upgrade take the connection over; then it is whole.
func (h *halved) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// TestWatchesAreCut ends every watch two seconds after it began.
func TestWatchesAreCut(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	var cut atomic.Int64
	play(t, shared, fault{
		title: "cut watches", effect: "every watch ends 2 s after it began, as it should or by a reset",
		connect: g.connect, hold: 20 * time.Second, off: g.end,
		on: func(t *testing.T) {
			g.begin(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if isWatch(r) {
					ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
					defer cancel()
					// Every other one ends as an API server ends a watch, the rest is reset.
					defer func() { g.politely.Store(cut.Add(1)%2 == 0) }()
					r = r.WithContext(ctx)
				}
				pass.ServeHTTP(w, r)
			})(t)
			g.cutWatches()
		},
		after: func(t *testing.T, _ *work, _ *process) {
			if cut.Load() < 2 {
				t.Errorf("%d watches were cut", cut.Load())
			}
		},
	})
}

// TestEveryStatusWriteConflicts refuses each write of a policy's status. Pods are reaped as if nothing were, and the counts are made
// good afterwards.
func TestEveryStatusWriteConflicts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as the operator waits between two writes")
	}
	g := &gateway{}
	var refused atomic.Int64
	play(t, shared, fault{
		title: "conflicts", effect: "every write of a policy's status is answered by 409",
		connect: g.connect, hold: 20 * time.Second, off: g.end,
		on: g.begin(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/jobmeshpolicies/") && strings.HasSuffix(r.URL.Path, "/status") {
				refused.Add(1)
				refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
				return
			}
			pass.ServeHTTP(w, r)
		}),
		after: func(t *testing.T, w *work, _ *process) {
			n := refused.Load()
			t.Logf("%d writes were refused", n)
			// 250 ms, doubled each time up to a minute, is 6 or 7 in 20 s; a new spec or a reap may add some.
			if n == 0 || n > 40 {
				t.Errorf("%d writes were refused, want some, but no flood", n)
			}
			eventually(t, 2*time.Minute, "the policy's status to count every pod", func() error {
				var policy v1alpha1.JobMeshPolicy
				if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "reap"}, &policy); err != nil {
					return err
				}
				if n := policy.Status.ReapedPods; n == nil || *n != int64(w.pods) {
					return fmt.Errorf("%v of %d", n, w.pods)
				}
				return nil
			})
		},
	})
}
