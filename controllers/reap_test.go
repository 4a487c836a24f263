// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Jobs of every kind on a real control plane: which are reaped, how they end, and which are left alone.

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
	"github.com/jobmesh/jobmesh/test/builders"
	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// meshed begins the pod of a Job with one app container and a classic proxy.
func meshed() *builders.Pod {
	return builders.MakePod("template").App("app", nil).Proxy(nil)
}

// runs scripts the app container.
func runs(d time.Duration, exitCodes ...int32) simnode.Script {
	return simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Run: metav1.Duration{Duration: d}, ExitCodes: exitCodes}}}
}

// jobOf makes a Job from a pod and scripts.
func jobOf(namespace, name string, pod *builders.Pod, scripts ...interface{ Annotate(metav1.Object) }) *batchv1.Job {
	template := pod.Obj()
	for _, s := range scripts {
		s.Annotate(template)
	}
	job := builders.MakeJob(name, template)
	job.Namespace = namespace
	return job
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// ended returns the condition that ended the Job, or "".
func ended(g Gomega, namespace, name string) batchv1.JobConditionType {
	var job batchv1.Job
	g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &job)).To(Succeed())
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

func expectEnd(t *testing.T, namespace, name string, want batchv1.JobConditionType) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		g.Expect(ended(g, namespace, name)).To(Equal(want))
	}, soon, 100*time.Millisecond).Should(Succeed())
}

func enforce(namespace string) *builders.Policy {
	return builders.MakePolicy("reap").Namespace(namespace)
}

// TestJobsEndAsWithoutAMesh runs Jobs to their end, with every kind of proxy that can be made to quit.
func TestJobsEndAsWithoutAMesh(t *testing.T) {
	onFailure := corev1.RestartPolicyOnFailure
	second := metav1.Duration{Duration: time.Second}
	tests := map[string]struct {
		pod         *builders.Pod
		scripts     []interface{ Annotate(metav1.Object) }
		change      func(*batchv1.Job)
		wantEnd     batchv1.JobConditionType
		wantResult  string // of the reaped pod
		wantAppRuns int32
		needs       cluster.Feature
	}{
		"the app succeeds": {pod: meshed(), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"the app fails under Never": {
			pod: meshed(), scripts: scripts(runs(0, 3)), change: noRetries, wantEnd: batchv1.JobFailed, wantResult: "Failed"},
		"the app is OOM-killed under Never": {
			pod: meshed(), scripts: scripts(simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {ExitCodes: []int32{137}, Reason: "OOMKilled"}}}),
			change: noRetries, wantEnd: batchv1.JobFailed, wantResult: "Failed"},
		"the app fails twice under OnFailure and keeps its proxy": {
			pod: meshed().RestartPolicy(onFailure), scripts: scripts(runs(0, 1, 1, 0)), wantEnd: batchv1.JobComplete, wantResult: "Succeeded", wantAppRuns: 3},
		"a restart rule brings the app back under Never": {
			pod: builders.MakePod("template").App("app", nil, builders.Restart(corev1.ContainerRestartPolicyNever),
				builders.Rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)).Proxy(nil),
			scripts: scripts(runs(0, 42, 0)), wantEnd: batchv1.JobComplete, wantResult: "Succeeded", wantAppRuns: 2, needs: cluster.RestartRules},
		"two apps, one slower": {
			pod:     meshed().App("uploader", nil),
			scripts: scripts(simnode.Script{Containers: map[string]simnode.ContainerScript{"uploader": {Run: second}}}),
			wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an init container first": {
			pod: builders.MakePod("template").Init("prepare", nil).App("app", nil).Proxy(nil), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"another native sidecar": {
			pod:     builders.MakePod("template").Init("logs", nil, builders.Always).App("app", nil).Proxy(nil),
			scripts: scripts(simnode.Script{Containers: map[string]simnode.ContainerScript{"logs": {Run: metav1.Duration{Duration: -1}}}}),
			wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an old agent that drains": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourDrain, Drain: second}), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an agent whose port opens late": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse, For: second}), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an agent that exits before it answers": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourNoReply}), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an agent that resets and exits": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourResetExit}), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an agent that answers 500 at first": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourServerError, For: second}), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an agent that exits 1 fails the pod": {
			pod: meshed(), scripts: scripts(simnode.ProxyScript{Behaviour: simnode.BehaviourExit1}), change: noRetries, wantEnd: batchv1.JobFailed, wantResult: "Failed"},
		"a status port by annotation": {
			pod: meshed().Annotation("status.sidecar.istio.io/port", "15099"), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"a status port by proxy config": {
			pod: meshed().Annotation("proxy.istio.io/config", "statusPort: 15098"), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"a status port by the proxy's variable": {
			pod: builders.MakePod("template").App("app", nil).Proxy(nil, builders.Env("PROXY_CONFIG", `{"statusPort":15097}`)), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an app named much like the proxy": {
			pod: meshed().App("istio-proxy-logger", nil), wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
		"an Indexed Job": {
			pod: meshed(), change: func(j *batchv1.Job) {
				j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
				j.Spec.Completions, j.Spec.Parallelism = new(int32(3)), new(int32(2))
			}, wantEnd: batchv1.JobComplete, wantResult: "Succeeded"},
	}
	namespace := makeNamespace(t)
	create(t, enforce(namespace).Obj())
	op := startOperator(t, namespace)
	t.Run("group", func(t *testing.T) {
		n := 0
		for name, tc := range tests {
			n++
			jobName := "job-" + string(rune('a'+n-1))
			t.Run(name, func(t *testing.T) {
				if why := testCluster.Lacks(tc.needs); why != "" {
					t.Skip(why)
				}
				t.Parallel()
				g := NewWithT(t)
				job := jobOf(namespace, jobName, tc.pod, tc.scripts...)
				if tc.change != nil {
					tc.change(job)
				}
				create(t, job)
				expectEnd(t, namespace, jobName, tc.wantEnd)
				for _, pod := range podsOf(g, namespace, jobName) {
					for _, status := range pod.Status.ContainerStatuses {
						if status.Name == "istio-proxy" {
							g.Expect(status.RestartCount).To(BeZero(), "the proxy must not restart")
						}
						if status.Name == "app" && tc.wantAppRuns > 0 {
							g.Expect(status.RestartCount).To(Equal(tc.wantAppRuns - 1))
						}
					}
					state, found := fleet.Pod(namespace, pod.Name)
					g.Expect(found).To(BeTrue())
					g.Expect(state.QuitsPremature).To(BeZero(), "a quit came while the app could still run")
					g.Eventually(func(g Gomega) {
						g.Expect(eventsOf(g, namespace, pod.Name)).To(ContainElement("Reaped"))
					}, soon, 100*time.Millisecond).Should(Succeed())
				}
			})
		}
	})
	g := NewWithT(t)
	var succeeded, failed float64
	for _, tc := range tests {
		switch {
		case testCluster.Lacks(tc.needs) != "":
		case tc.wantResult == "Failed":
			failed++
		default:
			succeeded++
		}
	}
	succeeded += 2 // the Indexed Job has three pods
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_reaped_pods_total", map[string]string{"namespace": namespace, "policy": "reap", "result": "Succeeded"})).To(Equal(succeeded))
		g.Expect(op.metric(t, "jobmesh_reaped_pods_total", map[string]string{"result": "Failed"})).To(Equal(failed))
		g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(BeZero())
	}, soon, 100*time.Millisecond).Should(Succeed())
	g.Eventually(func(g Gomega) {
		var p v1alpha1.JobMeshPolicy
		g.Expect(admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "reap"}, &p)).To(Succeed())
		g.Expect(p.Status.ReapedPods).To(HaveValue(Equal(int64(succeeded + failed))))
		g.Expect(p.Status.LastReapTime).NotTo(BeNil())
		g.Expect(p.Status.Pods.Stuck).To(HaveValue(BeZero()))
	}, soon, 100*time.Millisecond).Should(Succeed())
}

func scripts(s ...interface{ Annotate(metav1.Object) }) []interface{ Annotate(metav1.Object) } {
	return s
}

func noRetries(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(0)) }

// TestPodsThatAreNotTouched runs pods that JobMesh must leave alone, or can do nothing for.
func TestPodsThatAreNotTouched(t *testing.T) {
	forever := runs(-1)
	tests := map[string]struct {
		pod        *builders.Pod
		scripts    []interface{ Annotate(metav1.Object) }
		wantMetric map[string]string // of jobmesh_stuck_pods; nil: not stuck
		wantEvent  string
		wantEnd    batchv1.JobConditionType
	}{
		"the app runs":           {pod: meshed(), scripts: scripts(forever)},
		"the other app runs":     {pod: meshed().App("other", nil), scripts: scripts(simnode.Script{Containers: map[string]simnode.ContainerScript{"other": {Run: metav1.Duration{Duration: -1}}}})},
		"an image cannot be had": {pod: meshed().App("other", nil), scripts: scripts(simnode.Script{Containers: map[string]simnode.ContainerScript{"other": {Waiting: "ImagePullBackOff"}}})},
		"a native sidecar":       {pod: builders.MakePod("template").NativeProxy().App("app", nil), scripts: scripts(simnode.ProxyScript{Drain: metav1.Duration{Duration: time.Second}}), wantEnd: batchv1.JobComplete},
		"no mesh":                {pod: builders.MakePod("template").App("app", nil), wantEnd: batchv1.JobComplete},
		"opted out":              {pod: meshed().Annotation(v1alpha1.ModeAnnotation, "Disabled")},
		"a gateway":              {pod: builders.MakePod("template").App("app", nil).Proxy(nil, builders.Args("proxy", "router"))},
		"no status port": {pod: meshed().Annotation("status.sidecar.istio.io/port", "0"),
			wantMetric: map[string]string{"verdict": "Blocked", "reason": "StatusPortDisabled"}, wantEvent: "StatusPortDisabled"},
		"the node's network": {pod: meshed().HostNetwork(),
			wantMetric: map[string]string{"verdict": "Blocked", "reason": "HostNetwork"}, wantEvent: "HostNetwork"},
		"proxyless gRPC": {pod: builders.MakePod("template").App("app", nil).Proxy(nil, builders.Env("DISABLE_ENVOY", "true")),
			wantMetric: map[string]string{"verdict": "Blocked", "reason": "ProxylessGRPC"}, wantEvent: "ProxylessGRPC"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			namespace := makeNamespace(t)
			create(t, enforce(namespace).Obj(), jobOf(namespace, "job", tc.pod, tc.scripts...))
			op := startOperator(t, namespace)
			pod := onlyPod(t, namespace)
			if tc.wantEnd != "" {
				expectEnd(t, namespace, "job", tc.wantEnd)
			}
			if tc.wantMetric != nil {
				g.Eventually(func(g Gomega) {
					g.Expect(op.metric(t, "jobmesh_stuck_pods", tc.wantMetric)).To(Equal(1.0))
					g.Expect(eventsOf(g, namespace, pod.Name)).To(ContainElement(tc.wantEvent))
				}, soon, 100*time.Millisecond).Should(Succeed())
			}
			g.Consistently(func(g Gomega) {
				g.Expect(op.metric(t, "jobmesh_quit_attempts_total", nil)).To(BeZero())
			}, settled, 200*time.Millisecond).Should(Succeed())
			if state, found := fleet.Pod(namespace, pod.Name); found {
				g.Expect(state.Quits).To(BeZero())
			}
		})
	}
}

type silentProxy struct{ behaviour, wantOutcome string }

// timeoutSeconds is short where the attempt is to run into it. A closed connection takes containerd a second to pass on.
func (p silentProxy) timeoutSeconds() int32 {
	if p.wantOutcome == "timeout" {
		return 1
	}
	return 10
}

// TestProxiesThatDoNotQuit are asked again and again, with the pod shown as stuck.
func TestProxiesThatDoNotQuit(t *testing.T) {
	tests := map[string]silentProxy{
		"answers and stays": {simnode.BehaviourNeverExits, "accepted"},
		"never answers":     {simnode.BehaviourHang, "timeout"},
		"resets":            {simnode.BehaviourReset, "unknown"},
		"panics":            {simnode.BehaviourPanic, "unknown"},
		"endless body":      {simnode.BehaviourHugeBody, "accepted"},
		"endless headers":   {simnode.BehaviourHugeHeaders, "rejected"},
		"one byte a second": {simnode.BehaviourSlowDrip, "accepted"},
		"no HTTP":           {simnode.BehaviourGarbage, "rejected"},
		"answers 500":       {simnode.BehaviourServerError, "rejected"},
		"redirects":         {simnode.BehaviourRedirect, "rejected"},
		"port never opens":  {simnode.BehaviourRefuse, "refused"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			namespace := makeNamespace(t)
			create(t, enforce(namespace).Quit(tc.timeoutSeconds(), v1alpha1.QuitFallbackNone).Obj(),
				jobOf(namespace, "job", meshed(), simnode.ProxyScript{Behaviour: tc.behaviour}))
			op := startOperator(t, namespace)
			g.Eventually(func(g Gomega) {
				g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"outcome": tc.wantOutcome})).To(BeNumerically(">=", 1))
				g.Expect(op.metric(t, "jobmesh_stuck_pods", nil)).To(Equal(1.0))
			}, soon, 50*time.Millisecond).Should(Succeed())
			g.Expect(op.metric(t, "jobmesh_reaped_pods_total", nil)).To(BeZero(), "a reply is not a reap")
			g.Expect(ended(g, namespace, "job")).To(BeEmpty())
		})
	}
}

// TestTwentyPodsAtOnce are all reaped, though their agents open their ports late.
func TestTwentyPodsAtOnce(t *testing.T) {
	namespace := makeNamespace(t)
	job := jobOf(namespace, "burst", meshed(), simnode.ProxyScript{Behaviour: simnode.BehaviourRefuse, For: metav1.Duration{Duration: 2 * time.Second}})
	job.Spec.Parallelism, job.Spec.Completions = new(int32(20)), new(int32(20))
	create(t, enforce(namespace).Obj(), job)
	op := startOperator(t, namespace)
	expectEnd(t, namespace, "burst", batchv1.JobComplete)
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(op.metric(t, "jobmesh_reaped_pods_total", map[string]string{"result": "Succeeded"})).To(Equal(20.0))
	}, soon, 100*time.Millisecond).Should(Succeed())
	g.Expect(op.metric(t, "jobmesh_quit_attempts_total", map[string]string{"outcome": "refused"})).To(BeNumerically(">", 0))
}

// TestDefaultModeEnforce reaps where no policy governs.
func TestDefaultModeEnforce(t *testing.T) {
	t.Parallel()
	namespace := makeNamespace(t)
	create(t, jobOf(namespace, "job", meshed()))
	op := startOperator(t, namespace, func(o *operator.Options) { o.DefaultMode = v1alpha1.ModeEnforce })
	expectEnd(t, namespace, "job", batchv1.JobComplete)
	NewWithT(t).Eventually(func() float64 {
		return op.metric(t, "jobmesh_reaped_pods_total", map[string]string{"policy": ""})
	}, soon, 100*time.Millisecond).Should(Equal(1.0))
}
