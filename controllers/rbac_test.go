// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The operator's rights: exactly these, and not one too many.

package controllers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
)

const managerRole = "jobmesh-manager"

var wantRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create", "get"}},
	{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get"}},
	{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	{APIGroups: []string{"jobmesh.dev"}, Resources: []string{"jobmeshpolicies"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"jobmesh.dev"}, Resources: []string{"jobmeshpolicies/status"}, Verbs: []string{"patch"}},
}

var wantLeaderElectionRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"}},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
}

// TestRightsAreExactlyThese fails when a right is added or dropped unseen.
func TestRightsAreExactlyThese(t *testing.T) {
	var role rbacv1.ClusterRole
	if err := admin.Get(t.Context(), client.ObjectKey{Name: managerRole}, &role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantRules, role.Rules); diff != "" {
		t.Errorf("The rules of ClusterRole %s differ (-want +got):\n%s", managerRole, diff)
	}
	var leader rbacv1.Role
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "jobmesh-leader-election"}, &leader); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLeaderElectionRules, leader.Rules); diff != "" {
		t.Errorf("The rules of the Role for leader election differ (-want +got):\n%s", diff)
	}
	var bindings rbacv1.ClusterRoleBindingList
	if err := admin.List(t.Context(), &bindings); err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, b := range bindings.Items {
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == operatorAccount }) {
			roles = append(roles, b.RoleRef.Name)
		}
	}
	if diff := cmp.Diff([]string{managerRole}, roles); diff != "" {
		t.Errorf("The operator's ClusterRoles differ (-want +got):\n%s", diff)
	}
}

// TestEveryRightIsNeeded takes the rules away one by one: each time something that works with all of them must stop working.
// The test changes the one ClusterRole, so it does not run beside others.
func TestEveryRightIsNeeded(t *testing.T) {
	// A witness is true once what the right is for has happened in the namespace.
	witnesses := map[string]func(g Gomega, namespace string) bool{
		"pods":             jobCompletes,
		"pods/portforward": jobCompletes,
		"jobmeshpolicies":  jobCompletes,
		"jobs": func(g Gomega, namespace string) bool {
			return ended(g, namespace, "graceful") == batchv1.JobComplete
		},
		"events": func(g Gomega, namespace string) bool {
			pods := podsOf(g, namespace, "job")
			return len(pods) == 1 && slices.Contains(eventsOf(g, namespace, pods[0].Name), "Reaped")
		},
		"jobmeshpolicies/status": func(g Gomega, namespace string) bool {
			var p v1alpha1.JobMeshPolicy
			g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "reap"}, &p)).To(Succeed())
			return p.Status.ReapedPods != nil && *p.Status.ReapedPods > 0
		},
	}
	scenario := func(t *testing.T) string {
		namespace := makeNamespace(t)
		// Only the Job tells that a grace period of an hour must end after about three seconds.
		graceful := jobOf(namespace, "graceful", meshed().Label("grace", "yes"))
		graceful.Spec.ActiveDeadlineSeconds = new(int64(33))
		create(t, enforce(namespace).Obj(),
			enforce(namespace).With(func(p *v1alpha1.JobMeshPolicy) { p.Name = "grace" }).Selects("grace", "yes").Priority(1).Grace(3600).Obj(),
			jobOf(namespace, "job", meshed()), graceful)
		return namespace
	}
	restore := func() {
		if err := setRules(context.Background(), wantRules); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)

	t.Run("with all of them", func(t *testing.T) {
		namespace := scenario(t)
		startOperator(t, namespace)
		g := NewWithT(t)
		for resource, witness := range witnesses {
			g.Eventually(witness, soon, 100*time.Millisecond).WithArguments(namespace).Should(BeTrue(), resource)
		}
	})
	for i, rule := range wantRules {
		t.Run("without "+rule.Resources[0], func(t *testing.T) {
			witness, ok := witnesses[rule.Resources[0]]
			if !ok {
				t.Fatal("no witness for this right")
			}
			if err := setRules(t.Context(), slices.Concat(wantRules[:i], wantRules[i+1:])); err != nil {
				t.Fatal(err)
			}
			defer restore()
			time.Sleep(500 * time.Millisecond) // the authorizer reads roles from a cache
			namespace := scenario(t)
			startOperator(t, namespace)
			g := NewWithT(t)
			g.Consistently(witness, 6*time.Second, 200*time.Millisecond).WithArguments(namespace).Should(BeFalse())
		})
	}
}

func jobCompletes(g Gomega, namespace string) bool {
	return ended(g, namespace, "job") == batchv1.JobComplete
}

// TestLeaseRightsAreNeeded shows the leases rule at work: with it an operator leads, and gives the lease back when it stops.
func TestLeaderElection(t *testing.T) {
	namespace := makeNamespace(t)
	elect := func(o *operator.Options) { o.LeaderElect, o.LeaderElectionNamespace = true, operatorNamespace }
	create(t, enforce(namespace).Obj())
	g := NewWithT(t)
	lease := func() (string, error) {
		var l coordinationv1.Lease
		err := admin.Get(context.Background(), client.ObjectKey{Namespace: operatorNamespace, Name: "jobmesh-leader"}, &l)
		if err != nil || l.Spec.HolderIdentity == nil {
			return "", client.IgnoreNotFound(err)
		}
		return *l.Spec.HolderIdentity, nil
	}
	first := startOperator(t, namespace, elect)
	g.Eventually(lease, soon, 50*time.Millisecond).ShouldNot(BeEmpty())
	second := startOperator(t, namespace, elect)
	create(t, jobOf(namespace, "one", meshed()))
	expectEnd(t, namespace, "one", batchv1.JobComplete)

	stopped := time.Now()
	g.Expect(first.stop()).To(Succeed())
	create(t, jobOf(namespace, "two", meshed()))
	expectEnd(t, namespace, "two", batchv1.JobComplete)
	t.Logf("The second replica had reaped %s after the first was told to stop", time.Since(stopped).Round(10*time.Millisecond))
	g.Eventually(func() float64 { return second.metric(t, "jobmesh_reaped_pods_total", nil) }, soon, 50*time.Millisecond).Should(Equal(1.0))
	g.Expect(second.stop()).To(Succeed())
	g.Expect(lease()).To(BeEmpty(), "the lease must be given back")
}

// TestLeaseRightIsNeeded takes the right to leases away: the operator must not lead.
func TestLeaseRightIsNeeded(t *testing.T) {
	var role rbacv1.Role
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "jobmesh-leader-election"}
	if err := admin.Get(t.Context(), key, &role); err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	role.Rules = rules[1:]
	if err := admin.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	defer func() {
		role.Rules = rules
		if err := admin.Update(context.Background(), &role); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}()
	time.Sleep(500 * time.Millisecond)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj(), jobOf(namespace, "job", meshed()))
	startOperator(t, namespace, func(o *operator.Options) { o.LeaderElect, o.LeaderElectionNamespace = true, operatorNamespace })
	g := NewWithT(t)
	g.Consistently(jobCompletes, 5*time.Second, 200*time.Millisecond).WithArguments(namespace).Should(BeFalse())
}

// TestRightsOfSomeNamespacesAreEnough runs an operator that may do nothing outside the namespaces it was told.
func TestRightsOfSomeNamespacesAreEnough(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	narrow := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "narrow"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "narrow"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: managerRole},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operatorNamespace, Name: narrow.Name}}}
	create(t, narrow, binding, enforce(namespace).Obj(), jobOf(namespace, "job", meshed()))
	config, err := testCluster.ServiceAccountConfig(t.Context(), operatorNamespace, narrow.Name)
	g.Expect(err).NotTo(HaveOccurred())
	startOperatorAs(t, config, namespace)
	expectEnd(t, namespace, "job", batchv1.JobComplete)
}
