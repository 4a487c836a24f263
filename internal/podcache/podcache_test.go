// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What is kept of a pod, field by field; that it is enough to decide; what it costs.

package podcache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/randfill"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// filled returns a Job's pod with every field of the API set.
func filled(t testing.TB) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	randfill.NewWithSeed(1).NilChance(0).NumElements(2, 2).MaxDepth(30).Funcs(
		func(m *metav1.FieldsV1, _ randfill.Continue) { *m = *metav1.NewFieldsV1(`{"f:a":{}}`) },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Time{Time: build.Start} },
		func(t *metav1.MicroTime, _ randfill.Continue) { *t = metav1.MicroTime{Time: build.Start} },
	).Fill(pod)
	pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name, pod.OwnerReferences[0].Controller = "batch/v1", "Job", "job", new(true)
	pod.OwnerReferences[1].Controller = new(false)
	pod.Annotations = map[string]string{"other": "x"}
	for _, key := range keptAnnotations {
		pod.Annotations[key] = "x"
	}
	pod.Spec.Containers[1].Name = istio.ProxyContainer
	pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "OTHER", Value: "x"}}
	for _, name := range istio.ReadVariables {
		pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: name, Value: "x", ValueFrom: &corev1.EnvVarSource{}})
	}
	pod.Spec.HostNetwork = true
	pod.Status.Conditions[0].Type = corev1.AllContainersRestarting
	return pod
}

var index = regexp.MustCompile(`\[\d+\]`)

// paths returns the JSON paths of all values that are set.
func paths(t *testing.T, object any) []string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var all []string
	var walk func(string, any)
	walk = func(path string, node any) {
		switch n := node.(type) {
		case map[string]any:
			if len(n) == 0 {
				all = append(all, path)
			}
			for key, value := range n {
				walk(path+"."+key, value)
			}
		case []any:
			for i, value := range n {
				walk(fmt.Sprintf("%s[%d]", path, i), value)
			}
		case nil:
		default:
			all = append(all, path)
		}
	}
	walk("", tree)
	for i := range all {
		all[i] = index.ReplaceAllString(all[i], "[]")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestWhatIsKept lists every field that stays. One more costs memory per pod: it must be read by a decision.
func TestWhatIsKept(t *testing.T) {
	states := func(list string) []string {
		prefix := ".status." + list + "[]"
		return []string{prefix + ".containerID", prefix + ".image", prefix + ".imageID", prefix + ".name", prefix + ".ready", prefix + ".restartCount", prefix + ".state.running.startedAt",
			prefix + ".state.terminated.exitCode", prefix + ".state.terminated.finishedAt", prefix + ".state.terminated.reason", prefix + ".state.waiting"}
	}
	containers := func(list string) []string {
		prefix := ".spec." + list + "[]"
		return []string{prefix + ".name", prefix + ".restartPolicy", prefix + ".restartPolicyRules[].action",
			prefix + ".restartPolicyRules[].exitCodes.operator", prefix + ".restartPolicyRules[].exitCodes.values[]"}
	}
	want := slices.Concat(states("containerStatuses"), states("initContainerStatuses"), states("ephemeralContainerStatuses"),
		containers("containers"), containers("initContainers"), []string{
			".metadata.deletionTimestamp", ".metadata.name", ".metadata.namespace", ".metadata.resourceVersion", ".metadata.uid",
			".metadata.ownerReferences[].apiVersion", ".metadata.ownerReferences[].blockOwnerDeletion", ".metadata.ownerReferences[].controller",
			".metadata.ownerReferences[].kind", ".metadata.ownerReferences[].name", ".metadata.ownerReferences[].uid",
			".metadata.annotations.jobmesh.dev/mode", ".metadata.annotations.proxy.istio.io/config", ".metadata.annotations.status.sidecar.istio.io/port",
			".spec.activeDeadlineSeconds", ".spec.hostNetwork", ".spec.nodeName", ".spec.restartPolicy", ".spec.ephemeralContainers[].name",
			".spec.containers[].args[]", ".spec.containers[].command[]", ".spec.containers[].env[].name", ".spec.containers[].env[].value",
			".status.phase", ".status.startTime", ".status.conditions[].status", ".status.conditions[].type",
			".metadata.labels.LABEL",
		})
	// The API writes these even where they are zero.
	zero := []string{".spec.containers[].resources", ".spec.initContainers[].resources", ".spec.ephemeralContainers[].resources",
		".status.conditions[].lastProbeTime", ".status.conditions[].lastTransitionTime"}
	for _, list := range []string{"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"} {
		zero = append(zero, ".status."+list+"[].lastState")
	}
	want = append(want, zero...)
	slices.Sort(want)

	t.Run("of the whole pod", func(t *testing.T) {
		pod := filled(t)
		pod.Labels = map[string]string{"LABEL": "x"}
		kept := Strip(pod)
		optional := func(path string) bool { return slices.Contains(zero, path) || strings.HasSuffix(path, ".startedAt") }
		drop := func(list []string) []string { return slices.DeleteFunc(slices.Clone(list), optional) }
		if diff := cmp.Diff(drop(want), drop(paths(t, kept))); diff != "" {
			t.Errorf("Kept fields (-want +got):\n%s", diff)
		}
		for i := range kept.Status.ContainerStatuses {
			s := kept.Status.ContainerStatuses[i]
			if diff := cmp.Diff(corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID, State: s.State}, s); diff != "" {
				t.Errorf("More than wanted is kept of a status:\n%s", diff)
			}
		}
	})
	t.Run("the spec and its containers hold nothing else", func(t *testing.T) {
		kept := Strip(filled(t))
		fieldsOf := func(o any) (set []string) {
			v := reflect.ValueOf(o)
			for i := range v.NumField() {
				if !v.Field(i).IsZero() {
					set = append(set, v.Type().Field(i).Name)
				}
			}
			return set
		}
		if diff := cmp.Diff([]string{"Name", "RestartPolicy", "RestartPolicyRules"}, fieldsOf(kept.Spec.Containers[0])); diff != "" {
			t.Errorf("App container (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Name", "Command", "Args", "Env", "RestartPolicy", "RestartPolicyRules"}, fieldsOf(kept.Spec.Containers[1])); diff != "" {
			t.Errorf("Proxy (-want +got):\n%s", diff)
		}
		if len(kept.OwnerReferences) != 1 || len(kept.Annotations) != len(keptAnnotations) || len(kept.Spec.Containers[1].Env) != len(istio.ReadVariables) || len(kept.Status.Conditions) != 1 {
			t.Errorf("Too much is kept: %d owners, %d annotations, %d variables, %d conditions", len(kept.OwnerReferences), len(kept.Annotations),
				len(kept.Spec.Containers[1].Env), len(kept.Status.Conditions))
		}
	})
}

func TestOthersKeepOnlyTheirName(t *testing.T) {
	pod := filled(t)
	pod.OwnerReferences[0].Kind = "ReplicaSet"
	want := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	if diff := cmp.Diff(want, Strip(pod)); diff != "" {
		t.Errorf("Kept (-want +got):\n%s", diff)
	}
}

func TestTransform(t *testing.T) {
	pod := filled(t)
	before := pod.DeepCopy()
	got, err := transform(pod)
	if err != nil || cmp.Diff(Strip(pod), got) != "" {
		t.Errorf("Got %v, %v", got, err)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("The given pod was changed:\n%s", diff)
	}
	again, err := transform(got)
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("A second time it changes again, %v:\n%s", err, diff)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a/b"}
	if got, err := transform(tombstone); err != nil || got != tombstone {
		t.Errorf("A tombstone became %v, %v", got, err)
	}
}

// FuzzStrippedPodsAreDecidedAlike holds the cache to its promise: it keeps all that a decision reads.
func FuzzStrippedPodsAreDecidedAlike(f *testing.F) {
	for seed := range int64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		pod, in := randomInput(seed)
		in.Pod = pod
		full := verdict.Decide(in)
		in.Pod = Strip(pod)
		stripped := verdict.Decide(in)
		if full.Reason == verdict.NotJobPod { // of which nothing is kept that could be told
			full = verdict.Decision{Verdict: full.Verdict, Reason: full.Reason, Message: full.Message}
			stripped = verdict.Decision{Verdict: stripped.Verdict, Reason: stripped.Reason, Message: stripped.Message}
		}
		// The proxy's container is the pod's own, stripped here.
		if diff := cmp.Diff(full, stripped, cmpopts.IgnoreFields(istio.Proxy{}, "Container")); diff != "" {
			t.Errorf("Decisions (-full +stripped):\n%s", diff)
		}
	})
}

// randomInput makes a pod of random fields, likely to come far down the table of verdicts.
func randomInput(seed int64) (*corev1.Pod, verdict.Input) {
	pick := func(c randfill.Continue, of ...string) string { return of[c.Intn(len(of))] }
	at := func(c randfill.Continue) metav1.Time {
		return metav1.Time{Time: build.Start.Add(time.Duration(c.Intn(100)) * time.Second)}
	}
	pod, in := &corev1.Pod{}, verdict.Input{Now: build.FinishedAt.Add(time.Second)}
	filler := randfill.NewWithSeed(seed).NilChance(.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(m *metav1.FieldsV1, _ randfill.Continue) { *m = *metav1.NewFieldsV1(`{}`) },
		func(t *metav1.Time, c randfill.Continue) { *t = at(c) },
		func(o *metav1.OwnerReference, c randfill.Continue) {
			*o = metav1.OwnerReference{APIVersion: pick(c, slices.Concat(slices.Repeat([]string{"batch/v1"}, 15), []string{"apps/v1"})...), Kind: "Job", Name: "job", Controller: new(c.Intn(16) > 0)}
		},
		func(p *corev1.PodPhase, c randfill.Continue) {
			*p = corev1.PodPhase(pick(c, "Pending", "Pending", "Running", "Running", "Running", "Running", "Running", "Running", "Running", "Running", "Running", "Failed"))
		},
		func(p *corev1.RestartPolicy, c randfill.Continue) {
			*p = corev1.RestartPolicy(pick(c, "Never", "Never", "OnFailure", "Always"))
		},
		func(p *corev1.ContainerRestartPolicy, c randfill.Continue) {
			*p = corev1.ContainerRestartPolicy(pick(c, "Never", "OnFailure", "Always"))
		},
		func(r *corev1.ContainerRestartRule, c randfill.Continue) {
			*r = corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleAction(pick(c, "Restart", "RestartAllContainers")),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(pick(c, "In", "NotIn")), Values: []int32{int32(c.Intn(4))}}}
		},
		func(e *corev1.EnvVar, c randfill.Continue) {
			*e = corev1.EnvVar{Name: pick(c, "PROXY_CONFIG", "DISABLE_ENVOY", "OTHER"), Value: pick(c, "true", `{"statusPort":9}`, "{", "")}
		},
		func(d *corev1.PodCondition, c randfill.Continue) {
			c.FillNoCustom(d)
			d.Type, d.Status = corev1.PodConditionType(pick(c, "Ready", "Ready", "Ready", string(corev1.AllContainersRestarting))), corev1.ConditionStatus(pick(c, "True", "False", "False"))
		},
		func(s *corev1.ContainerState, c randfill.Continue) { // sometimes none or several at once, which no kubelet does
			if c.Intn(4) > 0 {
				s.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(max(0, c.Intn(6)-3)), FinishedAt: at(c), Reason: pick(c, "Completed", "RestartingAllContainers", "Error"), Message: c.String(9)}
			}
			if c.Intn(4) == 0 {
				s.Running = &corev1.ContainerStateRunning{StartedAt: at(c)}
			}
			if c.Intn(8) == 0 {
				s.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			}
		},
		func(s *corev1.ContainerStatus, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Name = pick(c, "app", "istio-proxy", "other")
			if s.Name == "istio-proxy" && c.Intn(2) == 0 {
				s.State = *build.Running()
			}
		},
		func(s *corev1.Container, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Name = pick(c, "app", "istio-proxy", "istio-proxy", "other")
			s.Command, s.Args = nil, [][]string{{"proxy", "sidecar"}, {"proxy", "sidecar"}, {"proxy", "router"}, {"proxy", "--flag", "sidecar"}}[c.Intn(4)]
		},
		func(s *corev1.PodSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			s.HostNetwork = c.Intn(6) == 0
			if s.ActiveDeadlineSeconds != nil {
				*s.ActiveDeadlineSeconds = int64(c.Intn(200))
			}
			if c.Intn(8) > 0 {
				s.InitContainers = nil
			}
			if c.Intn(8) > 0 {
				s.Containers = make([]corev1.Container, 2)
				c.Fill(&s.Containers[0])
				c.Fill(&s.Containers[1])
				s.Containers[0].Name, s.Containers[1].Name = "app", istio.ProxyContainer
			}
		},
		func(s *corev1.PodStatus, c randfill.Continue) {
			c.FillNoCustom(s)
			if c.Intn(8) > 0 {
				s.ContainerStatuses = make([]corev1.ContainerStatus, 2)
				c.Fill(&s.ContainerStatuses[0])
				c.Fill(&s.ContainerStatuses[1])
				s.ContainerStatuses[0].Name, s.ContainerStatuses[1].Name = "app", istio.ProxyContainer
				if c.Intn(3) > 0 {
					s.ContainerStatuses[1].State = *build.Running()
				}
			}
		},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.OwnerReferences = m.OwnerReferences[:min(1, len(m.OwnerReferences))]
			if len(m.OwnerReferences) == 0 {
				m.OwnerReferences = build.MakePod("pod").Obj().OwnerReferences
			}
			if c.Intn(12) > 0 {
				m.DeletionTimestamp = nil
			}
			switch c.Intn(9) {
			case 0:
				m.Annotations = map[string]string{v1alpha1.ModeAnnotation: pick(c, "Disabled", "disabled", "Enforce")}
			case 1:
				m.Annotations = map[string]string{"status.sidecar.istio.io/port": pick(c, "0", "15021", "x")}
			case 2:
				m.Annotations = map[string]string{"proxy.istio.io/config": pick(c, "statusPort: 7", "terminationDrainDuration: 9s", "{")}
			}
		},
		func(s *policy.Settings, c randfill.Continue) {
			*s = policy.Settings{Policy: "p", Mode: v1alpha1.Mode(pick(c, "Enforce", "Enforce", "Enforce", "DryRun", "Disabled")),
				GracePeriod: time.Duration(c.Intn(3)) * time.Minute, QuitTimeout: 10 * time.Second, ExecFallback: c.Bool()}
			if c.Bool() {
				s.IgnoredContainers = []string{"other"}
			}
		},
	)
	filler.Fill(pod)
	filler.Fill(&in.Settings)
	return pod, in
}

// TestFuzzedPodsReachTheWholeTable keeps the fuzz test honest: pods that are all ignored would prove little.
func TestFuzzedPodsReachTheWholeTable(t *testing.T) {
	reasons := map[verdict.Reason]int{}
	for seed := range int64(300) {
		pod, in := randomInput(seed)
		in.Pod = pod
		reasons[verdict.Decide(in).Reason]++
	}
	if len(reasons) < 16 {
		t.Errorf("Only %d reasons: %v", len(reasons), reasons)
	}
}

func TestSelector(t *testing.T) {
	// The fields that the API server knows for pods are few: these two are among them.
	for _, r := range Selector().Requirements() {
		if r.Field != "spec.restartPolicy" && r.Field != "status.phase" {
			t.Errorf("The API server may not know the field %s", r.Field)
		}
	}
	again, err := fields.ParseSelector(Selector().String())
	if err != nil || again.String() != Selector().String() {
		t.Errorf("Written and read again it is %v, %v", again, err)
	}
	for _, tc := range []struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		want   bool
	}{
		{corev1.RestartPolicyNever, corev1.PodRunning, true}, {corev1.RestartPolicyOnFailure, corev1.PodPending, true},
		{corev1.RestartPolicyNever, corev1.PodUnknown, true}, {corev1.RestartPolicyNever, "", true},
		{corev1.RestartPolicyAlways, corev1.PodRunning, false},
		{corev1.RestartPolicyNever, corev1.PodSucceeded, false}, {corev1.RestartPolicyOnFailure, corev1.PodFailed, false},
	} {
		if got := Selector().Matches(fields.Set{"spec.restartPolicy": string(tc.policy), "status.phase": string(tc.phase)}); got != tc.want {
			t.Errorf("%s, %s: %v, want %v", tc.policy, tc.phase, got, tc.want)
		}
	}
	if o := ByObject(); o.Field.String() != Selector().String() || o.Transform == nil || o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
		t.Errorf("The cache's settings are %+v", o)
	}
}

// BenchmarkMemoryPerPod tells how many bytes a pod takes, whole and as it is kept.
func BenchmarkMemoryPerPod(b *testing.B) {
	template := build.MakePod("pod").Init("istio-init", build.Exited(0)).App("app", build.Running()).Proxy(build.Running()).With(func(pod *corev1.Pod) {
		for i := range 40 {
			pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("x", 40)})
			pod.Spec.Containers[1].VolumeMounts = append(pod.Spec.Containers[1].VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint(i), MountPath: "/var/run"})
		}
		pod.Annotations = map[string]string{"sidecar.istio.io/status": strings.Repeat("x", 1000)}
	}).Obj()
	text, err := json.Marshal(template)
	if err != nil {
		b.Fatal(err)
	}
	for name, keep := range map[string]func(*corev1.Pod) *corev1.Pod{"whole": func(p *corev1.Pod) *corev1.Pod { return p }, "kept": Strip} {
		b.Run(name, func(b *testing.B) {
			const many = 500
			for b.Loop() {
				pods := make([]*corev1.Pod, many)
				before := heap()
				for i := range pods {
					pod := &corev1.Pod{}
					if err := json.Unmarshal(text, pod); err != nil {
						b.Fatal(err)
					}
					pods[i] = keep(pod)
				}
				b.ReportMetric(float64(heap()-before)/many, "bytes/pod")
				runtime.KeepAlive(pods)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
