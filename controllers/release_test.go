// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What differs between Kubernetes releases: which protocol carries a quit, and which verbs of pods/portforward it takes.

package controllers_test

import (
	"cmp"
	"context"
	"errors"
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

// TestRightsToPortForward shows which protocol a quit takes with which verbs, and that "create" and "get" together work everywhere.
func TestRightsToPortForward(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, jobOf(namespace, "job", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourNeverExits}))
	g := NewWithT(t)
	pod := onlyPod(t, namespace)
	g.Eventually(func(g Gomega) {
		var current corev1.Pod
		g.Expect(admin.Get(context.Background(), client.ObjectKeyFromObject(pod), &current)).To(Succeed())
		for _, s := range current.Status.ContainerStatuses {
			if s.Name == "istio-proxy" {
				g.Expect(s.State.Running).NotTo(BeNil())
			}
		}
		g.Expect(current.Status.ContainerStatuses).NotTo(BeEmpty())
	}, soon, 50*time.Millisecond).Should(Succeed())

	webSocket := testCluster.Lacks(cluster.WebSocketPortForward) == ""
	getIsEnough := webSocket && testCluster.Lacks(cluster.WebSocketNeedsCreate) != ""
	const forbidden = quit.Protocol("")
	best := quit.ProtocolSPDY
	if webSocket {
		best = quit.ProtocolWebSocket
	}
	withGet := forbidden
	if getIsEnough {
		withGet = quit.ProtocolWebSocket
	}
	for name, tc := range map[string]struct {
		verbs []string
		want  quit.Protocol
	}{
		"get": {verbs: []string{"get"}, want: withGet},
		// The WebSocket is a GET, so without the verb it takes the SPDY of a POST.
		"create":         {verbs: []string{"create"}, want: quit.ProtocolSPDY},
		"create and get": {verbs: []string{"create", "get"}, want: best},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := userWhoMay(t, namespace, tc.verbs)
			quitter, err := quit.NewClient(config) // a new one each time: it remembers what worked
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			result := quitter.PortForward(ctx, quit.Target{Namespace: namespace, Pod: pod.Name, Port: 15020})
			g.Expect(result.Protocol).To(Equal(tc.want), "%v", result.Err)
			if tc.want == forbidden {
				g.Expect(result.Outcome).To(Equal(quit.OutcomeError))
				g.Expect(errors.Is(result.Err, quit.ErrNotAllowed)).To(BeTrue(), "%v", result.Err)
			} else {
				g.Expect(result.Outcome).To(Equal(quit.OutcomeAccepted), "%v", result.Err)
			}
			t.Attr("portforward/"+strings.Join(tc.verbs, "+"), cmp.Or(string(result.Protocol), "forbidden"))
		})
	}
}

// userWhoMay returns the credentials of a user who has the given verbs of pods/portforward in a namespace, once the API server knows it.
func userWhoMay(t *testing.T, namespace string, verbs []string) *rest.Config {
	t.Helper()
	name := "portforward-" + strings.Join(verbs, "-")
	create(t,
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: verbs}},
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
					Namespace: namespace, Verb: verb, Resource: "pods", Subresource: "portforward",
				}},
			}, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(review.Status.Allowed).To(BeTrue())
		}, soon, 50*time.Millisecond).Should(Succeed())
	}
	return config
}
