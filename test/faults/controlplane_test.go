// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Faults of the control plane itself: an API server that dies, a history that is gone, a CRD that is not there yet.

package faults

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jobmesh/jobmesh/test/cluster"
)

// TestAPIServerDies kills the API server while apps finish, and starts it again on the same port. It is everybody's API server: the
// nodes cannot write a status either. It runs alone.
func TestAPIServerDies(t *testing.T) {
	play(t, shared, fault{
		title: "API server killed", effect: "SIGKILL, and started again with the same port and data", outage: true, everywhere: true,
		hold: 12 * time.Second,
		on: func(t *testing.T) {
			if err := shared.cluster.Kill("kube-apiserver"); err != nil {
				t.Fatal(err)
			}
		},
		off: func(t *testing.T) {
			if err := shared.cluster.Restart(t.Context(), "kube-apiserver"); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// TestEtcdDies does the same to etcd: the API server is there and fails.
func TestEtcdDies(t *testing.T) {
	if testing.Short() {
		t.Skip("much the same as a killed API server")
	}
	play(t, shared, fault{
		title: "etcd killed", effect: "the API server runs on and answers with errors, or not at all", outage: true, everywhere: true,
		hold: 12 * time.Second,
		on: func(t *testing.T) {
			if err := shared.cluster.Kill("etcd"); err != nil {
				t.Fatal(err)
			}
		},
		off: func(t *testing.T) {
			if err := shared.cluster.Restart(t.Context(), "etcd"); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// TestTheHistoryIsGone holds the operator's watches back while apps finish, and compacts etcd before they may resume. The API server
// of this cluster has no cache of its own that could fill in.
func TestTheHistoryIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a control plane of its own")
	}
	s, err := newStage(t.Context(), cluster.Options{APIServerFlags: []string{"--watch-cache=false"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if err := s.install(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{}
	released, release := context.WithCancel(t.Context())
	defer release()
	play(t, s, fault{
		title: "resource version too old", effect: "watches are cut, etcd is compacted, then the watches may resume",
		connect: g.connect, hold: 15 * time.Second, everywhere: true,
		on: func(t *testing.T) {
			g.begin(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
				if isWatch(r) {
					select {
					case <-released.Done():
					case <-r.Context().Done():
						return
					}
				}
				pass.ServeHTTP(w, r)
			})(t)
			g.politely.Store(true)
			g.cutWatches()
		},
		off: func(t *testing.T) {
			if _, err := s.cluster.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			release()
			g.end(t)
		},
		after: func(t *testing.T, _ *work, _ *process) {
			if g.expired.Load() == 0 {
				t.Error("No watch was told that its resource version is too old")
			}
		},
	})
}

// TestTheCRDComesLater starts the operator on a cluster without the CRD: it waits, says what for, and works once the CRD is there.
func TestTheCRDComesLater(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a control plane of its own")
	}
	s, err := newStage(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	w := &work{stage: s, namespace: s.makeNamespace(t)}
	p := s.startOperator(t, s.account)
	began := time.Now()
	eventually(t, 10*time.Second, "the operator to say what it waits for", func() error {
		p.running(t)
		return p.says("jobmeshpolic", "CRD", "CustomResourceDefinition")
	})
	w.create(t, job{name: "waiting", pods: 10, run: time.Second})
	w.awaitAppsEnded(t)
	time.Sleep(time.Until(began.Add(15 * time.Second)))
	p.running(t)
	if err := p.alive(t.Context()); err != nil {
		t.Errorf("While it waits, the kubelet would kill it: %v", err)
	}

	if err := s.install(); err != nil {
		t.Fatal(err)
	}
	installed := time.Now()
	w.enforce(t)
	const bound = 30 * time.Second
	w.awaitReaped(t, bound)
	row := row{
		Fault: "no CRD", Effect: "the operator starts before the CRD is installed; it says so and waits", Test: t.Name(), Pods: w.pods,
		Held: installed.Sub(began), Outage: true, LastReap: time.Since(installed),
	}
	p.waitReady(t)
	w.awaitComplete(t)
	p.running(t)
	idle, err := p.levelOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.finish(t, p, idle, row)
}
