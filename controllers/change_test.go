// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Things that change under way: policies, the operator itself, nodes, watches, and pods that go.

package controllers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestWithoutAPolicyAPodIsReportedAndNotTouched, until one comes.
func TestWithoutAPolicyAPodIsReportedAndNotTouched(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, jobOf(namespace, "job", meshed()))
	op := startOperator(t, namespace)
	pod := onlyPod(t, namespace)
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_stuck_pods", map[string]string{"policy": "", "verdict": "Observe", "reason": "DryRun"})).To(Equal(1.0))
		g.Expect(op.metric(t, "jobmesh_oldest_stuck_pod_timestamp_seconds", nil)).To(BeNumerically("~", time.Now().Unix(), 120))
		g.Expect(eventsOf(g, namespace, pod.Name)).To(ContainElement("DryRun"))
	}, soon, 100*time.Millisecond).Should(Succeed())
	g.Consistently(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(BeZero())
	}, settled, 200*time.Millisecond).Should(Succeed())
	create(t, enforce(namespace).Obj())
	expectEnd(t, namespace, "job", batchv1.JobComplete)
}

// TestAPolicyThatTurnsToEnforce reaps what was already stuck.
func TestAPolicyThatTurnsToEnforce(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	p := enforce(namespace).Mode(v1alpha1.ModeDryRun).Obj()
	create(t, p, jobOf(namespace, "job", meshed()))
	op := startOperator(t, namespace)
	g.Eventually(func() float64 {
		return op.metric(t, "jobmesh_stuck_pods", map[string]string{"policy": "reap", "verdict": "Observe"})
	}, soon, 50*time.Millisecond).Should(Equal(1.0))
	g.Eventually(func() error {
		if err := admin.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Spec.Mode = v1alpha1.ModeEnforce
		return admin.Update(context.Background(), p)
	}, soon, 50*time.Millisecond).Should(Succeed())
	expectEnd(t, namespace, "job", batchv1.JobComplete)
}

// TestPoliciesOutrankEachOther shows who governs, and that the loser says so.
func TestPoliciesOutrankEachOther(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Mode(v1alpha1.ModeDryRun).Obj(),
		enforce(namespace).With(func(p *v1alpha1.JobMeshPolicy) { p.Name = "winner" }).Priority(5).Quit(5, v1alpha1.QuitFallbackExec).Obj(),
		jobOf(namespace, "waits", meshed(), runs(-1)), jobOf(namespace, "job", meshed()))
	startOperator(t, namespace)
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g.Eventually(func(g Gomega) {
		var loser, winner v1alpha1.JobMeshPolicy
		g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "reap"}, &loser)).To(Succeed())
		g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "winner"}, &winner)).To(Succeed())
		overlapped := meta.FindStatusCondition(loser.Status.Conditions, v1alpha1.ConditionOverlapped)
		g.Expect(overlapped).NotTo(BeNil())
		g.Expect(overlapped.Status).To(Equal(metav1.ConditionTrue))
		g.Expect(overlapped.Message).To(ContainSubstring("winner"))
		g.Expect(meta.IsStatusConditionFalse(winner.Status.Conditions, v1alpha1.ConditionOverlapped)).To(BeTrue())
		g.Expect(meta.IsStatusConditionTrue(winner.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		g.Expect(meta.IsStatusConditionFalse(winner.Status.Conditions, v1alpha1.ConditionExecFallback)).To(BeTrue(), "the operator does not allow it")
		g.Expect(winner.Status.ObservedGeneration).To(HaveValue(Equal(winner.Generation)))
		g.Expect(winner.Status.Pods.Selected).To(HaveValue(Equal(int32(1))))
		g.Expect(loser.Status.Pods.Selected).To(HaveValue(BeZero()))
	}, soon, 100*time.Millisecond).Should(Succeed())
}

// TestOverlapFollowsThePods: policies that were there first say who governs the pods that come later, and when these are gone.
func TestOverlapFollowsThePods(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj(), enforce(namespace).With(func(p *v1alpha1.JobMeshPolicy) { p.Name = "winner" }).Priority(5).Obj())
	startOperator(t, namespace)
	overlapped := func(g Gomega) metav1.ConditionStatus {
		var p v1alpha1.JobMeshPolicy
		g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "reap"}, &p)).To(Succeed())
		condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionOverlapped)
		g.Expect(condition).NotTo(BeNil())
		return condition.Status
	}
	g.Eventually(overlapped, soon, 100*time.Millisecond).Should(Equal(metav1.ConditionFalse))
	job := jobOf(namespace, "job", meshed(), runs(-1))
	create(t, job)
	g.Eventually(overlapped, soon, 100*time.Millisecond).Should(Equal(metav1.ConditionTrue))
	g.Expect(admin.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	g.Eventually(overlapped, soon, 100*time.Millisecond).Should(Equal(metav1.ConditionFalse))
}

// TestIgnoredContainers neither keep the pod busy nor are asked to quit.
func TestIgnoredContainers(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Ignores("logs").Obj(), jobOf(namespace, "job", meshed().App("logs", nil), simnode.Script{
		Containers: map[string]simnode.ContainerScript{"logs": {Run: metav1.Duration{Duration: 4 * time.Second}, Auxiliary: true}}}))
	op := startOperator(t, namespace)
	g.Eventually(func() float64 { return op.metric(t, "jobmesh_reaped_pods_total", nil) }, soon, 50*time.Millisecond).Should(Equal(1.0))
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g.Expect(op.metric(t, "jobmesh_reaped_pods_total", nil)).To(Equal(1.0), "a pod is reaped once")
}

// TestGracePeriod leaves the proxy running for a while, but never into the pod's deadline.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Grace(3).Obj(), jobOf(namespace, "three", meshed()))
	hour := enforce(namespace).With(func(p *v1alpha1.JobMeshPolicy) { p.Name = "hour" }).Selects("grace", "hour").Priority(1).Grace(3600)
	create(t, hour.Obj(), jobOf(namespace, "cut", meshed().Label("grace", "hour").Deadline(32)))
	startOperator(t, namespace)
	expectEnd(t, namespace, "three", batchv1.JobComplete)
	expectEnd(t, namespace, "cut", batchv1.JobComplete)
	pod := podsOf(NewWithT(t), namespace, "three")[0]
	ends := map[string]time.Time{}
	for _, s := range pod.Status.ContainerStatuses {
		ends[s.Name] = s.State.Terminated.FinishedAt.Time
	}
	if left := ends["istio-proxy"].Sub(ends["app"]); left < 2*time.Second {
		t.Errorf("The proxy ended %s after the app; the grace period is 3 s (and times in a status are whole seconds)", left)
	}
}

// TestExecFallback reaps a pod without a status port, where operator, policy and RBAC all allow it.
func TestExecFallbackReapsWithoutAPort(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-exec"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create", "get"}}}}
	namespace := makeNamespace(t)
	// In this namespace only: no other test may come to rely on it.
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-exec", Namespace: namespace},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operatorNamespace, Name: operatorAccount}}}
	create(t, role, binding, enforce(namespace).Quit(10, v1alpha1.QuitFallbackExec).Obj(),
		jobOf(namespace, "job", meshed().Annotation("status.sidecar.istio.io/port", "0")))
	op := startOperator(t, namespace, func(o *operator.Options) { o.AllowExecFallback = true })
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"route": "Exec", "outcome": "accepted"})).To(BeNumerically(">=", 1))
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"route": "PortForward"})).To(BeZero())
}

// TestARestartedOperatorFindsWhatIsStuck, from nothing.
func TestARestartedOperatorFindsWhatIsStuck(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj(), jobOf(namespace, "job", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse, For: metav1.Duration{Duration: 3 * time.Second}}))
	first := startOperator(t, namespace)
	g.Eventually(func() float64 { return first.metric(t, "jobmesh_quit_attempts_total", nil) }, soon, 50*time.Millisecond).Should(BeNumerically(">=", 1))
	g.Expect(first.stop()).To(Succeed())
	second := startOperator(t, namespace)
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g.Eventually(func() float64 { return second.metric(t, "jobmesh_reaped_pods_total", nil) }, soon, 50*time.Millisecond).Should(Equal(1.0))
}

// TestAnAttemptIsFinishedBeforeTheOperatorEnds: told to stop in the middle of an attempt, it waits for the answer.
func TestAnAttemptIsFinishedBeforeTheOperatorEnds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj(), jobOf(namespace, "job", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourHang}))
	op := startOperator(t, namespace)
	pod := onlyPod(t, namespace)
	g.Eventually(func() int { s, _ := fleet.Pod(namespace, pod.Name); return s.Quits }, soon, 20*time.Millisecond).Should(Equal(1))
	began := time.Now()
	g.Expect(op.stop()).To(Succeed())
	took := time.Since(began)
	g.Expect(took).To(BeNumerically(">", 2*time.Second), "the attempt had its grace")
	g.Expect(took).To(BeNumerically("<", 20*time.Second), "and no more than that")
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(Equal(1.0), "the attempt that was cut is counted")
}

// TestJobsThatGo disappear from the metrics: deleted mid-way, suspended, or cleaned up at once when they end.
func TestJobsThatGo(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := makeNamespace(t)
	stays := simnode.ProxyScript{Behaviour: simnode.BehaviourNeverExits, Drain: metav1.Duration{Duration: -1}}
	suspended, deleted, cleaned := jobOf(namespace, "suspended", meshed(), stays), jobOf(namespace, "deleted", meshed(), stays), jobOf(namespace, "cleaned", meshed())
	cleaned.Spec.TTLSecondsAfterFinished = new(int32(0))
	create(t, enforce(namespace).Obj(), suspended, deleted, cleaned)
	op := startOperator(t, namespace)
	g.Eventually(func() float64 { return op.metric(t, "jobmesh_stuck_pods", nil) }, soon, 50*time.Millisecond).Should(BeNumerically(">=", 2))
	g.Expect(admin.Delete(context.Background(), deleted, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	g.Eventually(func() error {
		if err := admin.Get(context.Background(), client.ObjectKeyFromObject(suspended), suspended); err != nil {
			return err
		}
		suspended.Spec.Suspend = new(true)
		return admin.Update(context.Background(), suspended)
	}, soon, 50*time.Millisecond).Should(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_job_pods", nil)).To(BeZero())
		g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(BeZero())
		g.Expect(apierrors.IsNotFound(admin.Get(context.Background(), client.ObjectKeyFromObject(cleaned), cleaned))).To(BeTrue())
	}, soon, 100*time.Millisecond).Should(Succeed())
	g.Expect(op.metric(t, "jobmesh_reaped_pods_total", nil)).To(Equal(1.0), "the one that was cleaned up at once")
}

// TestALostWatchEventIsHealed by the resync: here no watch of pods ever delivers anything after its first list.
func TestALostWatchEventIsHealed(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	var muted atomic.Bool
	deaf := rest.CopyConfig(account)
	deaf.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && strings.HasSuffix(request.URL.Path, "/pods") && request.URL.Query().Get("watch") != "" {
				response.Body = &mutable{ReadCloser: response.Body, muted: &muted}
			}
			return response, err
		})
	})
	create(t, enforce(namespace).Obj())
	op := startOperatorAs(t, deaf, namespace, func(o *operator.Options) { o.ResyncInterval = time.Second })
	g := NewWithT(t)
	g.Eventually(func() float64 { return op.metric(t, "jobmesh_policies", nil) }, soon, 50*time.Millisecond).Should(Equal(1.0))
	muted.Store(true)
	create(t, jobOf(namespace, "job", meshed()))
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_reaped_pods_total", nil)).To(Equal(1.0))
		g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(BeZero())
	}, soon, 100*time.Millisecond).Should(Succeed())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// mutable passes nothing on once it is muted, but notices the end.
type mutable struct {
	io.ReadCloser
	muted *atomic.Bool
}

func (m *mutable) Read(p []byte) (int, error) {
	for {
		n, err := m.ReadCloser.Read(p)
		if !m.muted.Load() || err != nil {
			return n, err
		}
	}
}

// TestAHungNodeHoldsNobodyUp: its pods take their share of the places, and no more. It breaks a node, so it runs alone.
func TestAHungNodeHoldsNobodyUp(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace(t)
	hung := fleet.Node(1)
	hung.SetFault(simnode.FaultHangBeforeUpgrade)
	defer hung.SetFault(simnode.FaultNone)
	onNode := func(job *batchv1.Job, node string) *batchv1.Job {
		job.Spec.Template.Spec.NodeName = node
		job.Spec.Parallelism, job.Spec.Completions = new(int32(12)), new(int32(12))
		return job
	}
	create(t, enforce(namespace).Quit(60, v1alpha1.QuitFallbackNone).Obj(),
		onNode(jobOf(namespace, "hung", meshed()), hung.Name()))
	op := startOperator(t, namespace, func(o *operator.Options) { o.MaxConcurrentQuits, o.MaxQuitsPerNode = 4, 2 })
	g.Eventually(func() float64 { return op.metric(t, "jobmesh_stuck_pods", nil) }, soon, 50*time.Millisecond).Should(Equal(12.0))
	create(t, onNode(jobOf(namespace, "healthy", meshed()), fleet.Node(0).Name()))
	expectEnd(t, namespace, "healthy", batchv1.JobComplete)
	hung.SetFault(simnode.FaultNone)
	expectEnd(t, namespace, "hung", batchv1.JobComplete)
}

// TestNothingIsLeftOpen: when all is reaped, no port-forward is open at the nodes, nor at the API server.
func TestNothingIsLeftOpen(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace(t)
	job := jobOf(namespace, "many", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse, For: metav1.Duration{Duration: time.Second}})
	job.Spec.Parallelism, job.Spec.Completions = new(int32(40)), new(int32(40))
	create(t, enforce(namespace).Obj(), job)
	op := startOperator(t, namespace)
	expectEnd(t, namespace, "many", batchv1.JobComplete)
	t.Logf("%v attempts", op.metric(t, "jobmesh_quit_attempts_total", nil))
	g.Eventually(func(g Gomega) {
		counters := fleet.Counters()
		g.Expect(counters.OpenDials).To(BeZero())
		g.Expect(counters.OpenPortForwards).To(BeZero())
		g.Expect(openAtAPIServer(g)).To(BeZero())
	}, soon, 100*time.Millisecond).Should(Succeed())
}

// openAtAPIServer counts the port-forwards that the API server holds open, by its own metric.
func openAtAPIServer(g Gomega) int {
	transport, err := rest.HTTPClientFor(testCluster.Config())
	g.Expect(err).NotTo(HaveOccurred())
	response, err := transport.Get(testCluster.Config().Host + "/metrics")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	open := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `subresource="portforward"`) && !strings.HasSuffix(line, " 0") {
			open++
		}
	}
	return open
}
