// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A policy that goes while its pods are stuck.

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestAPolicyGoesWhileItsPodsAreStuck: they fall under the default mode, DryRun, and nobody asks them any more. A new policy reaps them.
// It has nodes of its own to break.
func TestAPolicyGoesWhileItsPodsAreStuck(t *testing.T) {
	t.Parallel()
	nodes, err := simnode.Start(t.Context(), shared.cluster.Config(), simnode.Options{NamePrefix: "hung"})
	if err != nil {
		t.Fatal(err)
	}
	own := *shared
	own.fleet = nodes
	w := &work{stage: &own, namespace: own.makeNamespace(t), node: nodes.Node(0).Name()}
	policy := w.enforce(t)
	p := own.startOperator(t, own.account, "--namespaces="+w.namespace)
	p.waitReady(t)
	idle := w.warmUp(t, p)

	nodes.Node(0).SetFault(simnode.FaultHangBeforeUpgrade)
	w.create(t, job{name: "stuck", pods: 20, run: time.Second})
	w.awaitAppsEnded(t)
	began := time.Now()
	eventually(t, soon, "an attempt to fail", func() error {
		n, err := p.metric(t.Context(), "jobmesh_quit_attempts_total", `outcome="timeout"`)
		if err == nil && n == 0 {
			err = fmt.Errorf("none yet")
		}
		return err
	})
	if err := own.admin.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	// Until its attempt has ended a pod counts under the policy that it began with.
	eventually(t, soon, "every pod to be stuck under the default mode, and no attempt under way", func() error {
		n, err := p.metric(t.Context(), "jobmesh_stuck_pods", `verdict="Observe"`, `reason="DryRun"`, `policy=""`)
		if err == nil && n != 20 {
			err = fmt.Errorf("%v of 20", n)
		}
		return err
	})
	before := nodes.Counters()
	nodes.Node(0).SetFault(simnode.FaultNone)
	time.Sleep(5 * time.Second)
	after := nodes.Counters()
	if after.QuitsReceived != before.QuitsReceived || after.PortForwards != before.PortForwards {
		t.Errorf("Without a policy pods were asked to quit: %+v, before %+v", after, before)
	}

	w.enforce(t)
	off := time.Now()
	w.awaitReaped(t, reapBound)
	row := row{
		Fault: "policy deleted", Effect: "deleted while its pods are stuck on a hung node: no further quit until there is a new one", Test: t.Name(),
		Pods: w.pods - warmUpPods, Held: off.Sub(began), LastReap: time.Since(off),
	}
	w.awaitComplete(t)
	w.finish(t, p, idle, row)
}
