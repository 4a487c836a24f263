// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Policies made to hurt: those that reach for other namespaces, and ten thousand of them.

package controllers_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/builders"
)

// TestPoliciesReachNoOtherNamespace writes policies that name other namespaces in every way that a selector knows, or does not know.
// All of them are of the highest priority, and the operator looks at both namespaces.
func TestPoliciesReachNoOtherNamespace(t *testing.T) {
	t.Parallel()
	mine, other := makeNamespace(t), makeNamespace(t)
	// The victim's pod bears the labels that the policies look for: as though its namespace's labels were its own.
	victim := meshed().Label("kubernetes.io/metadata.name", other).Label("team", "victim")
	create(t, jobOf(other, "job", victim))
	expectStuck(t, other, onlyPod(t, other).Name)

	specs := map[string]map[string]any{
		"everything":        {},
		"namespace-label":   {"podSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": other}}},
		"namespace-in-list": {"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{other, mine}}}}},
		"victims-label":     {"podSelector": map[string]any{"matchLabels": map[string]any{"team": "victim"}}},
		"not-mine":          {"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "nobody", "operator": "DoesNotExist"}}}},
		"field-namespace":   {"namespace": other, "namespaces": []any{other, "*"}},
		"field-selector":    {"namespaceSelector": map[string]any{}, "podSelector": map[string]any{"namespaces": []any{other}, "namespaceSelector": map[string]any{}}},
		"field-target":      {"targetRef": map[string]any{"kind": "Namespace", "name": other}},
	}
	for name, spec := range specs {
		spec["mode"], spec["priority"] = "Enforce", int64(1000)
		create(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "JobMeshPolicy",
			"metadata": map[string]any{
				"name": name, "namespace": mine,
				"labels": map[string]any{"kubernetes.io/metadata.name": other}, "annotations": map[string]any{"jobmesh.dev/namespace": other},
			}, "spec": spec,
		}})
	}
	// To write one there is what RBAC and the API server are for; a name in the path and another in the object is refused.
	elsewhere := enforce(mine).With(func(p *v1alpha1.JobMeshPolicy) { p.Namespace = "../" + other }).Obj()
	NewWithT(t).Expect(admin.Create(t.Context(), elsewhere)).NotTo(Succeed())

	op := startOperator(t, mine, func(o *operator.Options) { o.Namespaces = []string{mine, other} })
	create(t, jobOf(mine, "job", meshed()))
	expectEnd(t, mine, "job", batchv1.JobComplete) // the policies are in force, where they are
	g := NewWithT(t)
	g.Eventually(func() float64 {
		return op.metric(t, "jobmesh_stuck_pods", map[string]string{"namespace": other, "policy": "", "verdict": "Observe", "reason": "DryRun"})
	}, soon, 100*time.Millisecond).Should(Equal(1.0))
	g.Consistently(func(g Gomega) {
		state, _ := fleet.Pod(other, onlyPod(t, other).Name)
		g.Expect(state.Quits).To(BeZero())
		g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"namespace": other})).To(BeZero())
		for name := range specs {
			g.Expect(op.metric(t, "jobmesh_stuck_pods", map[string]string{"policy": name})).To(BeZero())
		}
	}, settled, 200*time.Millisecond).Should(Succeed())
}

// manyPolicies is how many policies one tenant writes into one namespace.
const manyPolicies = 10_000

// TestTenThousandPolicies of one namespace, each of which selects its pods: its own are still reaped within seconds, and those of the
// next namespace do not notice. All are outranked by one, so that each has a status to tell. It runs alone: it keeps the API server busy,
// and looks at the heap.
func TestTenThousandPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("writes ten thousand policies")
	}
	crowded, quiet := makeNamespace(t), makeNamespace(t)
	began := time.Now()
	writers, ctx := errgroup.WithContext(t.Context())
	writers.SetLimit(32)
	for n := range manyPolicies {
		writers.Go(func() error {
			p := builders.MakePolicy(fmt.Sprintf("policy-%05d", n)).Namespace(crowded).Priority(int32(n % 7)).With(func(p *v1alpha1.JobMeshPolicy) {
				switch n % 3 {
				case 1: // much to read
					p.Spec.PodSelector = &v1alpha1.PodSelector{MatchExpressions: []v1alpha1.PodSelectorRequirement{
						{Key: "nobody", Operator: "DoesNotExist"}, {Key: "app", Operator: "NotIn", Values: []v1alpha1.LabelValue{"a", "b", "c", "d", "e", "f", "g", "h"}}}}
				case 2: // matches nothing
					p.Spec.PodSelector = &v1alpha1.PodSelector{MatchLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(fmt.Sprintf("app-%d", n))}}
				}
			})
			return admin.Create(ctx, p.Obj())
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("Writing %d policies took %s", manyPolicies, time.Since(began).Round(time.Millisecond))
	create(t, enforce(crowded).Priority(1000).Obj(), enforce(quiet).Obj())

	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	op := startOperator(t, crowded, func(o *operator.Options) { o.Namespaces = []string{crowded, quiet} })
	g := NewWithT(t)
	// The first round meets an operator that has only just begun to tell each policy its status.
	g.Eventually(func() float64 { return op.metric(t, "jobmesh_policies", nil) }, soon, 100*time.Millisecond).Should(BeNumerically(">", 0))
	for round := range 2 {
		for _, namespace := range []string{crowded, quiet} {
			name := fmt.Sprintf("job-%d", round)
			job := jobOf(namespace, name, meshed())
			job.Spec.Parallelism, job.Spec.Completions = new(int32(5)), new(int32(5))
			create(t, job)
		}
		for _, namespace := range []string{quiet, crowded} {
			took := map[string]time.Duration{}
			g.Eventually(func(g Gomega) {
				pods := podsOf(g, namespace, fmt.Sprintf("job-%d", round))
				g.Expect(pods).To(HaveLen(5))
				for i := range pods {
					app, proxy := endOf(&pods[i], "app"), endOf(&pods[i], "istio-proxy")
					g.Expect(app.IsZero() || proxy.IsZero()).To(BeFalse())
					took[pods[i].Name] = proxy.Sub(app.Time)
				}
			}, soon, 100*time.Millisecond).Should(Succeed())
			slowest := time.Duration(0)
			for _, d := range took {
				slowest = max(slowest, d)
			}
			where := map[string]string{crowded: "beside 10,000 policies", quiet: "next door"}[namespace]
			t.Logf("Round %d, %s: the slowest proxy exited %s after its app", round, where, slowest)
			// Kubernetes tells these times in whole seconds.
			g.Expect(slowest).To(BeNumerically("<=", 6*time.Second), where)
		}
	}
	after := heap()
	grown := (int64(after) - int64(before)) >> 20
	t.Logf("The heap grew by %d MiB, %d bytes per policy", grown, (int64(after)-int64(before))/manyPolicies)
	g.Expect(grown).To(BeNumerically("<", 64), "MiB")
}

// endOf is when a container ended, or zero.
func endOf(pod *corev1.Pod, container string) metav1.Time {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container && s.State.Terminated != nil {
			return s.State.Terminated.FinishedAt
		}
	}
	return metav1.Time{}
}
