// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Attempts of every outcome against a real API server, and what is left of them: nothing.

package controllers_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestNothingRemainsOfTwoHundredAttempts makes 200 attempts, of every outcome, and looks for goroutines here, and for
// connections at the API server and at the nodes.
func TestNothingRemainsOfTwoHundredAttempts(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	namespace := makeNamespace(t)
	// The behaviours that leave the proxy running, so that each can be asked many times.
	behaviours := map[string]quit.Outcome{
		simnode.BehaviourNeverExits:  quit.OutcomeAccepted,
		simnode.BehaviourRefuse:      quit.OutcomeRefused,
		simnode.BehaviourServerError: quit.OutcomeRejected,
		simnode.BehaviourGarbage:     quit.OutcomeRejected,
		simnode.BehaviourHugeHeaders: quit.OutcomeRejected,
		simnode.BehaviourHugeBody:    quit.OutcomeAccepted,
		simnode.BehaviourHang:        quit.OutcomeTimeout,
		simnode.BehaviourReset:       quit.OutcomeUnknown,
		simnode.BehaviourPanic:       quit.OutcomeUnknown,
	}
	targets := map[string]quit.Target{"gone": {Namespace: namespace, Pod: "gone", Port: 15020}}
	want := map[string]quit.Outcome{"gone": quit.OutcomeError}
	for behaviour, outcome := range behaviours {
		pod := jobOf(namespace, "template", meshed(), simnode.ProxyScript{Behaviour: behaviour}).Spec.Template
		name := "pod-" + behaviour
		create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: pod.Annotations}, Spec: pod.Spec})
		targets[behaviour], want[behaviour] = quit.Target{Namespace: namespace, Pod: name, Port: 15020}, outcome
	}
	g.Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(admin.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
		for _, pod := range pods.Items {
			g.Expect(pod.Status.ContainerStatuses).To(HaveLen(2))
			g.Expect(pod.Status.ContainerStatuses[1].State.Running).NotTo(BeNil(), pod.Name)
		}
	}, soon, 100*time.Millisecond).Should(Succeed())

	asker, err := quit.NewClient(account)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(openAtAPIServer(g)).To(BeZero()) // which leaves the connection of the tests' own client open
	before := goleak.IgnoreCurrent()
	seen := map[quit.Outcome]int{}
	results := make(chan quit.Result, 200)
	var group errgroup.Group
	group.SetLimit(8)
	for n := 0; n < 200; {
		for name, target := range targets {
			if n++; n > 200 {
				break
			}
			group.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, timeoutFor(want[name]))
				defer cancel()
				result := asker.PortForward(ctx, target)
				if result.Outcome != want[name] {
					t.Errorf("%s: %s, want %s (%v)", name, result.Outcome, want[name], result.Err)
				}
				results <- result
				return nil
			})
		}
	}
	g.Expect(group.Wait()).To(Succeed())
	close(results)
	for result := range results {
		seen[result.Outcome]++
	}
	t.Logf("Outcomes: %v", seen)
	g.Eventually(func(g Gomega) {
		counters := fleet.Counters()
		g.Expect(counters.OpenPortForwards).To(BeZero(), "connections at the nodes")
		g.Expect(counters.OpenDials).To(BeZero(), "connections to proxies")
		g.Expect(openAtAPIServer(g)).To(BeZero(), "port-forwards at the API server")
		g.Expect(goleak.Find(before)).To(Succeed(), "goroutines")
	}, soon, 500*time.Millisecond).Should(Succeed())
}

func timeoutFor(outcome quit.Outcome) time.Duration {
	if outcome == quit.OutcomeTimeout {
		return time.Second
	}
	return 10 * time.Second
}
