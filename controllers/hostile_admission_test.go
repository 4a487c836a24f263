// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The admission policy that docs/security.md gives to those who want the operator's widest right narrower.

package controllers_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/internal/operator"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestAdmissionKeepsTheOperatorOut applies the policy as the document has it, but for the account: the other tests use that one. The
// operator has every right in two namespaces, and reaps in the one that is labelled.
func TestAdmissionKeepsTheOperatorOut(t *testing.T) {
	if testCluster.Version().Minor() < 30 {
		t.Skip("ValidatingAdmissionPolicy came with Kubernetes 1.30")
	}
	t.Parallel()
	g := NewWithT(t)
	closed, open := makeNamespace(t), makeNamespace(t)
	const name = "kept-out"
	text, err := os.ReadFile("../docs/security.md")
	g.Expect(err).NotTo(HaveOccurred())
	block := yamlBlock.FindStringSubmatch(string(text))
	g.Expect(block).NotTo(BeNil())
	narrowed := strings.ReplaceAll(strings.ReplaceAll("\n"+block[1], "jobmesh-system:jobmesh-controller-manager", operatorNamespace+":"+name), "\n   ", "\n")
	for document := range strings.SplitSeq(narrowed, "\n---\n") {
		object := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed(), document)
		create(t, object)
		t.Cleanup(func() { _ = admin.Delete(context.Background(), object) })
	}
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name}})
	for _, namespace := range []string{closed, open} {
		create(t, enforce(namespace).Obj(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: managerRole},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operatorNamespace, Name: name}}})
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"jobmesh.dev/allowed":""}}}`))
	g.Expect(admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: open}}, label)).To(Succeed())
	time.Sleep(2 * time.Second) // the API server compiles policies beside its requests

	config, err := testCluster.ServiceAccountConfig(t.Context(), operatorNamespace, name)
	g.Expect(err).NotTo(HaveOccurred())
	op := startOperatorAs(t, config, closed, func(o *operator.Options) { o.Namespaces = []string{closed, open} })
	create(t, jobOf(closed, "job", meshed()), jobOf(open, "job", meshed()))
	expectEnd(t, open, "job", batchv1.JobComplete)
	g.Eventually(func() float64 {
		return op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"namespace": closed, "outcome": "error"})
	}, soon, 100*time.Millisecond).Should(BeNumerically(">=", 2))
	g.Expect(op.metric(t, "jobmesh_stuck_pods", map[string]string{"namespace": closed})).To(Equal(1.0))
	g.Expect(ended(g, closed, "job")).To(BeEmpty())
	state, _ := fleet.Pod(closed, onlyPod(t, closed).Name)
	g.Expect(state.Quits).To(BeZero())
}
