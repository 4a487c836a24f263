// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The play that every fault is given: the operator idles, Jobs start, the fault comes, their apps finish, the fault goes.

package faults

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/builders"
)

const (
	// reapBound is how long after a fault's end the last stuck pod may be reaped.
	reapBound = 5 * time.Minute
	// calmBound is how long it may take from then until the operator holds no more than it did before.
	calmBound = 30 * time.Second
)

// fault is something that breaks and is mended.
type fault struct {
	// title names it in the documentation, and effect says what the operator goes through.
	title, effect string
	// connect returns the way to the API server that is going to break; nil is the straight one.
	connect func(*testing.T, *stage) *rest.Config
	on, off func(*testing.T)
	// hold is the least time that the fault lasts. It lasts at least until every app has finished.
	hold time.Duration
	// outage says that no status of a pod can be written meanwhile, so that the fault ends after hold whatever the apps do.
	outage bool
	// everywhere has the operator look at all namespaces, as it does unless told otherwise. Then no other test may run beside.
	everywhere bool
	// after, where set, looks at more at the end.
	after func(*testing.T, *work, *process)
}

// batches are the Jobs that run into the fault: apps that finish one after another, and apps that fail and are started again, so
// that a quit upon a stale state would be premature.
func batches() []job {
	if testing.Short() {
		return []job{
			{name: "early", pods: 8, run: 2500 * time.Millisecond},
			{name: "late", pods: 8, run: 4 * time.Second},
			{name: "retried", pods: 4, run: 2 * time.Second, exitCodes: []int32{1, 0}},
		}
	}
	return []job{
		{name: "early", pods: 10, run: 7 * time.Second},
		{name: "middle", pods: 10, run: 11 * time.Second},
		{name: "late", pods: 10, run: 15 * time.Second},
		{name: "retried", pods: 10, run: 4 * time.Second, exitCodes: []int32{1, 1, 0}},
	}
}

// play runs the whole of it and checks what must hold under every fault.
func play(t *testing.T, s *stage, f fault) {
	t.Helper()
	w := &work{stage: s, namespace: s.makeNamespace(t)}
	w.enforce(t)
	config := s.account
	if f.connect != nil {
		config = f.connect(t, s)
	}
	var flags []string
	if !f.everywhere {
		flags = append(flags, "--namespaces="+w.namespace)
	}
	p := s.startOperator(t, config, flags...)
	p.waitReady(t)
	idle := w.warmUp(t, p)

	w.create(t, batches()...)
	w.awaitStarted(t)
	hold := f.hold
	if testing.Short() {
		hold = min(hold, 4*time.Second)
	}
	f.on(t)
	on := time.Now()
	if f.outage {
		time.Sleep(hold)
	} else {
		w.awaitAppsEnded(t)
		time.Sleep(time.Until(on.Add(hold)))
	}
	var during progress
	if !f.outage {
		var err error
		if during, err = w.progress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.off(t)
	off := time.Now()
	row := row{
		Fault: f.title, Effect: f.effect, Test: t.Name(), Pods: w.pods - warmUpPods, Held: off.Sub(on), During: max(0, during.succeeded-warmUpPods), Outage: f.outage,
	}

	w.awaitReaped(t, reapBound)
	row.LastReap = time.Since(off)
	// What comes later finds an operator that works as before.
	w.create(t, job{name: "afterwards", pods: 4, run: time.Second})
	w.awaitReaped(t, soon)
	w.awaitComplete(t)
	p.running(t)
	w.finish(t, p, idle, row)
	if f.after != nil {
		f.after(t, w, p)
	}
}

// enforce puts a policy into the namespace.
func (w *work) enforce(t *testing.T) *v1alpha1.JobMeshPolicy {
	t.Helper()
	policy := builders.MakePolicy("reap").Namespace(w.namespace).Obj()
	if err := w.admin.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	return policy
}

const warmUpPods = 2

// warmUp has some pods reaped, so that all that is opened once is open, and measures the idle operator.
func (w *work) warmUp(t *testing.T, p *process) level {
	t.Helper()
	w.create(t, job{name: "warm-up", pods: warmUpPods, run: 100 * time.Millisecond})
	w.awaitReaped(t, soon)
	time.Sleep(2 * time.Second) // the connections of the attempts close, the events are sent
	idle, err := p.levelOf(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return idle
}

// finish checks what must hold when all is over, and hands the row in.
func (w *work) finish(t *testing.T, p *process, idle level, row row) {
	t.Helper()
	var last level
	row.Calm = eventually(t, calmBound, "the operator to hold no more than before", func() (err error) {
		if last, err = p.levelOf(t.Context()); err != nil {
			return err
		}
		return last.near(idle)
	})
	row.Idle, row.Last = idle, last
	eventually(t, calmBound, "no port-forward to be open at the nodes", func() error {
		return w.noneOpen()
	})
	all, premature, most := w.quits(t)
	row.Quits, row.Most = all, most
	if premature > 0 {
		t.Errorf("%d quits reached a proxy while its app could still run", premature)
	}
	reaped, err := p.metric(t.Context(), "jobmesh_reaped_pods_total", `namespace="`+w.namespace+`"`)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s: held %.1f s, %d of %d reaped meanwhile, the last %.1f s after its end; %d quits, at most %d for one pod, %v counted as reaped; "+
		"%d → %d goroutines, %d → %d sockets, after %.1f s",
		row.Fault, row.Held.Seconds(), row.During, row.Pods, row.LastReap.Seconds(), all, most, reaped,
		idle.goroutines, last.goroutines, idle.sockets, last.sockets, row.Calm.Seconds())
	if !t.Failed() {
		results.add(row)
	}
}
