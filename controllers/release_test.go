// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What differs between Kubernetes releases: which protocol carries a quit, and which verbs that takes.

package controllers_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestRelease says what the cluster is, for `make test-compat` to tabulate, and that it is what it was taken for.
func TestRelease(t *testing.T) {
	release := testCluster.Version()
	server, err := discovery.NewDiscoveryClientForConfig(testCluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	info, err := server.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if want := "v" + release.String(); info.GitVersion != want {
		t.Errorf("the API server is %s, not %s", info.GitVersion, want)
	}
	t.Attr("kubernetes", release.String())
	for _, f := range cluster.Features() {
		have := "yes"
		switch {
		case f.MissingFrom(release) != "":
			have = "no"
		case f.GatedIn(release):
			have = "gated"
		}
		t.Attr(f.Gate(), have)
	}
}

// TestVerbs shows which protocol a quit takes with which verbs of pods/portforward and of pods/exec, and that "create" and "get"
// together work everywhere.
func TestVerbs(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, jobOf(namespace, "job", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourNeverExits}))
	pod := onlyPod(t, namespace)
	NewWithT(t).Eventually(func(g Gomega) {
		var current corev1.Pod
		g.Expect(admin.Get(context.Background(), client.ObjectKeyFromObject(pod), &current)).To(Succeed())
		g.Expect(current.Status.ContainerStatuses).To(ContainElement(SatisfyAll(
			HaveField("Name", "istio-proxy"), HaveField("State.Running", Not(BeNil())))))
	}, soon, 50*time.Millisecond).Should(Succeed())
	target := quit.Target{Namespace: namespace, Pod: pod.Name, Container: "istio-proxy", Port: 15020}

	for subresource, feature := range map[string]cluster.Feature{
		"portforward": cluster.WebSocketPortForward,
		"exec":        cluster.WebSocketExec,
	} {
		const forbidden = quit.Protocol("")
		best, withGet := quit.ProtocolSPDY, forbidden
		if testCluster.Lacks(feature) == "" {
			best = quit.ProtocolWebSocket
			if testCluster.Lacks(cluster.WebSocketNeedsCreate) != "" {
				withGet = quit.ProtocolWebSocket
			}
		}
		for verbs, want := range map[string]quit.Protocol{
			"get":        withGet,
			"create":     quit.ProtocolSPDY, // a POST; the WebSocket is a GET
			"create+get": best,
		} {
			t.Run(subresource+"/"+verbs, func(t *testing.T) {
				g := NewWithT(t)
				config := userWhoMay(t, namespace, subresource, strings.Split(verbs, "+"))
				quitter, err := quit.NewClient(config) // a new one each time: it remembers what worked
				g.Expect(err).NotTo(HaveOccurred())
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				ask := quitter.PortForward
				if subresource == "exec" {
					ask = quitter.Exec
				}
				result := ask(ctx, target)
				g.Expect(result.Protocol).To(Equal(want), "%v", result.Err)
				if want == forbidden {
					g.Expect(result.Outcome).To(Equal(quit.OutcomeError))
					g.Expect(result.Err).To(MatchError(quit.ErrNotAllowed))
				} else {
					g.Expect(result.Outcome).To(Equal(quit.OutcomeAccepted), "%v", result.Err)
				}
				t.Attr(subresource+"/"+verbs, cmp.Or(string(result.Protocol), "forbidden"))
			})
		}
	}
}

// userWhoMay returns the credentials of a user who has the given verbs of a pod's subresource in a namespace, once the API server
// knows it.
func userWhoMay(t *testing.T, namespace, subresource string, verbs []string) *rest.Config {
	t.Helper()
	name := subresource + "-" + strings.Join(verbs, "-")
	create(t,
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/" + subresource}, Verbs: verbs}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})
	g := NewWithT(t)
	config, err := testCluster.UserConfig(name)
	g.Expect(err).NotTo(HaveOccurred())
	user, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	for _, verb := range verbs {
		g.Eventually(func(g Gomega) {
			review, err := user.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Resource: "pods", Subresource: subresource,
				}},
			}, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(review.Status.Allowed).To(BeTrue())
		}, soon, 50*time.Millisecond).Should(Succeed())
	}
	return config
}
