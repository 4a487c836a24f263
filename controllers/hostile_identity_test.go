// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Pods that are not what they say: of no Job, of no mesh, on the node's own network.

package controllers_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// expectStuck waits until every app container of the pod has ended while its proxy runs.
func expectStuck(t *testing.T, namespace, name string) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		var pod corev1.Pod
		g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(HaveEach(Or(
			And(HaveField("Name", "istio-proxy"), HaveField("State.Running", Not(BeNil()))), HaveField("State.Terminated", Not(BeNil())))))
		g.Expect(pod.Status.ContainerStatuses).NotTo(BeEmpty())
	}, soon, 50*time.Millisecond).Should(Succeed())
}

// expectUntouched makes sure that nobody asks, counts or speaks about the pods.
func expectUntouched(t *testing.T, op *running, namespace string, pods ...string) {
	t.Helper()
	g := NewWithT(t)
	g.Consistently(func(g Gomega) {
		for _, name := range pods {
			state, found := fleet.Pod(namespace, name)
			g.Expect(found).To(BeTrue(), name)
			g.Expect(state.Quits).To(BeZero(), name)
			g.Expect(eventsOf(g, namespace, name)).NotTo(ContainElement(BeElementOf("Reaped", "QuitFailed", "DryRun", "HostNetwork")), name)
		}
		g.Expect(op.metric(t, "jobmesh_stuck_pods", map[string]string{"namespace": namespace})).To(BeZero())
	}, settled, 200*time.Millisecond).Should(Succeed())
}

// TestPodsThatClaimAJob have what a Job's pods have, save the one thing that counts: a Job of batch that controls them.
func TestPodsThatClaimAJob(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	// Jobs that run no pods of their own.
	job := jobOf(namespace, "real", meshed())
	job.Spec.Suspend = new(true)
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "real"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: jobOf(namespace, "", meshed()).Spec},
	}}
	create(t, enforce(namespace).Grace(1).Obj(), job, cron)
	owner := func(apiVersion, kind string, of client.Object, controls *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: of.GetName(), UID: of.GetUID(), Controller: controls}}
	}
	claims := map[string][]metav1.OwnerReference{
		"labels-alone":        nil,
		"owned-not-said":      owner("batch/v1", "Job", job, nil),
		"owned-not-control":   owner("batch/v1", "Job", job, new(false)),
		"cronjob":             owner("batch/v1", "CronJob", cron, new(true)),
		"volcano":             owner("batch.volcano.sh/v1alpha1", "Job", job, new(true)),
		"no-group":            owner("v1", "Job", job, new(true)),
		"group-without":       owner("batch", "Job", job, new(true)),
		"group-in-capitals":   owner("Batch/v1", "Job", job, new(true)),
		"kind-in-small":       owner("batch/v1", "job", job, new(true)),
		"kind-with-a-space":   owner("batch/v1", "Job ", job, new(true)),
		"kind-in-the-version": owner("batch/v1/Job", "Job", job, new(true)),
	}
	template := jobOf(namespace, "template", meshed()).Spec.Template
	var names []string
	for name, owners := range claims {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: template.Annotations, OwnerReferences: owners,
			Labels: map[string]string{"job-name": job.Name, "batch.kubernetes.io/job-name": job.Name, "app.kubernetes.io/managed-by": "job-controller"},
		}, Spec: template.Spec}
		if err := admin.Create(t.Context(), pod); err != nil {
			// Some of these the API server does not even take.
			t.Logf("%s: %v", name, err)
			continue
		}
		names = append(names, name)
	}
	NewWithT(t).Expect(len(names)).To(BeNumerically(">=", 7))
	for _, name := range names {
		expectStuck(t, namespace, name)
	}
	op := startOperator(t, namespace)
	// One that is a Job's is reaped beside them.
	create(t, jobOf(namespace, "job", meshed()))
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	expectUntouched(t, op, namespace, names...)
}

// TestPodsOfNoMesh have a container that bears the proxy's name, and is something else. They stay as stuck as they made themselves,
// nobody else's Job waits for them, and nothing but their own port hears of it.
func TestPodsOfNoMesh(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Quit(1, v1alpha1.QuitFallbackExec).Obj())
	impostors := map[string]string{
		"web-server": simnode.BehaviourNotFound, "yes-man": simnode.BehaviourNeverExits, "gibberish": simnode.BehaviourGarbage, "tar-pit": simnode.BehaviourSlowHeaders,
		"bomber": simnode.BehaviourGzipBomb, "looper": simnode.BehaviourRedirectLoop, "painter": simnode.BehaviourEscapes, "drowner": simnode.BehaviourErrorFlood,
	}
	for name, behaviour := range impostors {
		create(t, jobOf(namespace, name, meshed(), simnode.ProxyScript{Behaviour: behaviour}))
	}
	op := startOperator(t, namespace)
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(Equal(float64(len(impostors))))
		// Four of them reject, each more than three times in a row: that is when exec would have its turn.
		g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"outcome": "rejected"})).To(BeNumerically(">=", 4*5))
	}, soon, 100*time.Millisecond).Should(Succeed())
	began := time.Now()
	create(t, jobOf(namespace, "honest", meshed()))
	expectEnd(t, namespace, "honest", batchv1.JobComplete)
	t.Logf("An honest Job beside %d impostors took %s", len(impostors), time.Since(began).Round(time.Millisecond))
	for name := range impostors {
		g.Expect(ended(g, namespace, name)).To(BeEmpty(), name)
	}
	g.Expect(op.metric(t, "jobmesh_reaped_pods_total", nil)).To(Equal(1.0), "a reply is not a reap")
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"route": "Exec"})).To(BeZero(), "exec is not allowed to this operator, whatever a policy asks for")
}

// TestTheNodesNetworkIsNeverDialled, though a policy asks for everything and the operator allows it.
func TestTheNodesNetworkIsNeverDialled(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Quit(1, v1alpha1.QuitFallbackExec).Obj(),
		jobOf(namespace, "job", meshed().HostNetwork().Annotation("status.sidecar.istio.io/port", "10250")))
	pod := onlyPod(t, namespace)
	expectStuck(t, namespace, pod.Name)
	op := startOperator(t, namespace, func(o *operator.Options) { o.AllowExecFallback = true })
	g := NewWithT(t)
	g.Eventually(func() float64 {
		return op.metric(t, "jobmesh_stuck_pods", map[string]string{"verdict": "Blocked", "reason": "HostNetwork"})
	}, soon, 100*time.Millisecond).Should(Equal(1.0))
	g.Consistently(func(g Gomega) {
		g.Expect(fleet.Counters().DialsToHostNetwork).To(BeZero())
		g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(BeZero())
	}, settled, 200*time.Millisecond).Should(Succeed())
}

// TestStatusPortsOfEveryOddValue go into Jobs' annotations as a tenant would write them. A value that is no port blocks its own pod,
// with a reason that says so, and is dialled by nobody.
func TestStatusPortsOfEveryOddValue(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj())
	ports := map[string]string{ // by the name of the Job
		"negative": "-1", "zero": "0", "too-high": "65536", "empty": "", "space": " ", "space-before": " 15020", "space-after": "15020 ",
		"hex": "0x3aac", "huge": "99999999999999999999999999", "wraps": "4294982316", "wraps-low": "-4294952276", "fraction": "15020.0", "exponent": "1502e1",
		"unicode": "１５０２０", "arabic": "١٥٠٢٠", "newline": "15020\n", "second-line": "15020\n15021", "json": `{"port":15020}`, "list": "[15020]", "name": "http-envoy-prom",
		"escape": "\x1b[31m15020", "nul": "15020\x00", "path": "15020/../../exec", "host": "10.0.0.1:15020", "underscore": "15_020", "right-to-left": "\u202e15020",
	}
	good := map[string]string{"plus": "+15020", "zeros": "0000015020", "lowest-free": "1024", "highest": "65535"}
	for name, value := range ports {
		create(t, jobOf(namespace, name, meshed().Annotation("status.sidecar.istio.io/port", value)))
	}
	for name, value := range good {
		create(t, jobOf(namespace, name, meshed().Annotation("status.sidecar.istio.io/port", value)))
	}
	op := startOperator(t, namespace)
	for name := range good {
		expectEnd(t, namespace, name, batchv1.JobComplete)
	}
	g := NewWithT(t)
	blocked := map[string]string{"verdict": "Blocked", "reason": "StatusPortDisabled"}
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_stuck_pods", blocked)).To(Equal(float64(len(ports))))
		g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(Equal(float64(len(ports))))
	}, soon, 100*time.Millisecond).Should(Succeed())
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(BeNumerically(">=", len(good)))
	for name := range ports {
		for _, pod := range podsOf(g, namespace, name) {
			state, _ := fleet.Pod(namespace, pod.Name)
			g.Expect(state.Quits).To(BeZero(), name)
			g.Eventually(func(g Gomega) {
				g.Expect(eventsOf(g, namespace, pod.Name)).To(ContainElement("StatusPortDisabled"))
			}, soon, 100*time.Millisecond).Should(Succeed())
		}
	}
}
