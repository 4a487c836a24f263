// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A neighbour whose proxies all hang takes every place for an attempt that one namespace may have. The rest is for others.

package controllers_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestANeighbourWhoseProxiesHang has five times as many of them as it may have places, and a time-out of twenty seconds. Jobs of others
// end before the first of its attempts has.
func TestANeighbourWhoseProxiesHang(t *testing.T) {
	t.Parallel()
	const places, hungPods, timeout = 16, 64, 20
	noisy, quiet := makeNamespace(t), makeNamespace(t)
	create(t, enforce(noisy).Quit(timeout, v1alpha1.QuitFallbackNone).Obj(), enforce(quiet).Obj())
	for n := range 2 { // half of them on each node, which the scheduler does not see to
		hung := jobOf(noisy, fmt.Sprintf("hung-%d", n), meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourHang})
		hung.Spec.Parallelism, hung.Spec.Completions = new(int32(hungPods/2)), new(int32(hungPods/2))
		hung.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("sim-%d", n)}
		create(t, hung)
	}
	op := startOperator(t, noisy, func(o *operator.Options) {
		o.Namespaces, o.MaxConcurrentQuits, o.MaxQuitsPerNode = []string{noisy, quiet}, places, places/2
	})
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_stuck_pods", map[string]string{"namespace": noisy})).To(BeNumerically(">", hungPods/2))
		g.Expect(op.metric(t, "jobmesh_quits_in_flight", nil)).To(Equal(float64(places * 3 / 4)))
	}, soon, 50*time.Millisecond).Should(Succeed())
	began := time.Now()
	names := []string{"first", "second", "third"}
	for _, name := range names {
		create(t, jobOf(quiet, name, meshed()))
	}
	for _, name := range names {
		expectEnd(t, quiet, name, batchv1.JobComplete)
	}
	took := time.Since(began)
	t.Logf("Three Jobs took %s beside %d hung proxies for %d places of %d s", took.Round(10*time.Millisecond), hungPods, places, timeout)
	g.Expect(took).To(BeNumerically("<", (timeout-5)*time.Second))
}
