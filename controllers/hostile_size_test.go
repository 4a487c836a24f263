// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Pods as large as the API server takes them.

package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/test/builders"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestAThousandContainers are each of them the app: the proxy is asked when the last one has finished, though the operator keeps only
// some of them in memory, and not before.
func TestAThousandContainers(t *testing.T) {
	t.Parallel()
	const many, slow = 1000, "app-0900"
	namespace := makeNamespace(t)
	pod := builders.MakePod("template")
	for n := range many {
		if n == many/2 {
			pod.Proxy(nil)
		}
		pod.App(fmt.Sprintf("app-%04d", n), nil)
	}
	create(t, enforce(namespace).Obj(), jobOf(namespace, "job", pod,
		simnode.Script{Containers: map[string]simnode.ContainerScript{slow: {Run: metav1.Duration{Duration: 5 * time.Second}}}}))
	op := startOperator(t, namespace)
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	only := onlyPod(t, namespace)
	state, _ := fleet.Pod(namespace, only.Name)
	g := NewWithT(t)
	g.Expect(state.QuitsPremature).To(BeZero())
	g.Expect(op.metric(t, "jobmesh_reaped_pods_total", map[string]string{"result": "Succeeded"})).To(Equal(1.0))
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(BeNumerically("<=", 3), "a container that runs must not cost attempts")
	g.Expect(endOf(only, "istio-proxy").Sub(endOf(only, slow).Time)).To(BeNumerically("<=", 5*time.Second))
}

// TestALargePod has annotations, labels, variables and arguments up to what the API server takes. It is reaped as any other.
func TestALargePod(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	pod := builders.MakePod("template").App("app", nil, func(c *corev1.Container) {
		c.Args = []string{strings.Repeat("a", 100<<10)}
	}).Proxy(nil, builders.Env("PROXY_CONFIG", "#"+strings.Repeat("c", 100<<10)), builders.Env("OTHER", strings.Repeat("\u202e\x1b[2J", 10<<10)),
		builders.Args("proxy", "sidecar", strings.Repeat("v", 100<<10))).
		Annotation("proxy.istio.io/config", "#"+strings.Repeat("x", 120<<10)).
		Annotation("sidecar.istio.io/status", strings.Repeat("{", 60<<10)).
		Annotation("jobmesh.dev/mode", strings.Repeat("D", 60<<10))
	for n := range 500 {
		pod.Label(fmt.Sprintf("label-%04d.example.com/%050d", n, n), strings.Repeat("v", 63))
	}
	create(t, enforce(namespace).Obj(), jobOf(namespace, "job", pod))
	startOperator(t, namespace)
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(admin.List(context.Background(), &list, client.InNamespace(namespace))).To(Succeed())
		text, err := json.Marshal(list.Items)
		g.Expect(err).NotTo(HaveOccurred())
		t.Logf("The pod has %d KiB", len(text)>>10)
		g.Expect(eventsOf(g, namespace, list.Items[0].Name)).To(ContainElement("Reaped"))
	}, soon, 200*time.Millisecond).Should(Succeed())
}
