// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Rules about two pods: what must not change a decision, and what must always forbid a quit, whatever else the pod is.

package verdict

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/istio"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// beside changes everything about a pod that is none of a decision's business.
func beside(pod *corev1.Pod) {
	const odd = "\x1b[31m\n\u202e"
	pod.Labels = map[string]string{"batch.kubernetes.io/job-name": "another", "app": odd, "sidecar.istio.io/inject": "false", "kubernetes.io/metadata.name": "kube-system"}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "sidecar.istio.io/status", "{")
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "prometheus.io/port", "1")
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "kubectl.kubernetes.io/default-container", odd)
	pod.Finalizers = []string{"example.com/" + odd}
	pod.GenerateName, pod.ResourceVersion, pod.Generation = odd, odd, -1
	pod.Spec.ServiceAccountName, pod.Spec.NodeName, pod.Spec.Hostname = odd, odd, odd
	pod.Spec.TerminationGracePeriodSeconds, pod.Spec.PriorityClassName = new(int64(-1)), odd
	pod.Status.Message, pod.Status.Reason, pod.Status.PodIP, pod.Status.HostIP = odd, "DeadlineExceeded", "127.0.0.1", odd
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: odd}, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Image, list[i].WorkingDir, list[i].TerminationMessagePath = odd, odd, odd
			list[i].Ports = []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15020, HostPort: 1}}
			if list[i].Name != istio.ProxyContainer {
				list[i].Args, list[i].Env = []string{"proxy", "router"}, []corev1.EnvVar{{Name: "DISABLE_ENVOY", Value: "true"}}
			}
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			list[i].Ready, list[i].Started, list[i].RestartCount = true, new(false), 1000
			list[i].Image, list[i].ImageID = odd, odd
			list[i].LastTerminationState = *build.Exited(1)
			if end := list[i].State.Terminated; end != nil {
				end.Message, end.ContainerID = odd, odd
				if end.Reason != "RestartingAllContainers" {
					end.Reason = odd
				}
			}
		}
	}
}

// shuffle changes the order of everything whose order says nothing. That of init containers says when they run.
func shuffle(pod *corev1.Pod, r *rand.Rand) {
	swap := func(n int, swap func(i, j int)) { r.Shuffle(n, swap) }
	swap(len(pod.Spec.Containers), func(i, j int) {
		pod.Spec.Containers[i], pod.Spec.Containers[j] = pod.Spec.Containers[j], pod.Spec.Containers[i]
	})
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		swap(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	swap(len(pod.Status.Conditions), func(i, j int) {
		pod.Status.Conditions[i], pod.Status.Conditions[j] = pod.Status.Conditions[j], pod.Status.Conditions[i]
	})
}

// FuzzDecideAlike decides about a pod and about one that differs in nothing that counts.
func FuzzDecideAlike(f *testing.F) {
	addPods(f)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		in := (&source{data}).input()
		want := Decide(in)

		in.Pod = in.Pod.DeepCopy()
		beside(in.Pod)
		proxy := cmpopts.IgnoreFields(istio.Proxy{}, "Container") // which holds an image, and more that is none of our business
		if diff := cmp.Diff(want, Decide(in), proxy); diff != "" {
			t.Errorf("what is none of its business changes the decision:\n%s", diff)
		}

		shuffle(in.Pod, rand.New(rand.NewPCG(seed, 0)))
		got := Decide(in)
		byName := cmpopts.SortSlices(func(a, b Container) bool { return a.Name+string(a.Role) < b.Name+string(b.Role) })
		if len(want.Containers) > 1 {
			got.Message = strings.NewReplacer(namesOf(in.Pod)...).Replace(got.Message) // any of those that are meant
			want.Message = strings.NewReplacer(namesOf(in.Pod)...).Replace(want.Message)
		}
		slices.Sort(got.Notes)
		slices.Sort(want.Notes)
		if diff := cmp.Diff(want, got, proxy, byName); diff != "" {
			t.Errorf("the order of the containers changes the decision:\n%s", diff)
		}
	})
}

// namesOf are replacements of every container's name by one word.
func namesOf(pod *corev1.Pod) []string {
	var pairs []string
	for i := range pod.Spec.Containers {
		pairs = append(pairs, "\""+pod.Spec.Containers[i].Name+"\"", "one")
	}
	return pairs
}

// spoilers each make a quit wrong, whatever the pod was before. They return false where they do not apply to it.
var spoilers = map[string]func(in *Input, n int) bool{
	"an app container runs": func(in *Input, n int) bool { return setApp(in, n, build.Running()) },
	"an app container waits": func(in *Input, n int) bool {
		return setApp(in, n, build.Waiting("CrashLoopBackOff"))
	},
	"an app container has an empty state": func(in *Input, n int) bool { return setApp(in, n, &corev1.ContainerState{}) },
	"an app container has no status":      func(in *Input, n int) bool { return setApp(in, n, nil) },
	"an app container will be restarted": func(in *Input, n int) bool {
		for i := range in.Pod.Spec.Containers {
			in.Pod.Spec.Containers[i].RestartPolicy, in.Pod.Spec.Containers[i].RestartPolicyRules = nil, nil
		}
		in.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		return setApp(in, n, build.Exited(1))
	},
	"an app container is added": func(in *Input, _ int) bool {
		in.Pod.Spec.Containers = append(in.Pod.Spec.Containers, corev1.Container{Name: "added"})
		return true
	},
	"an init container is added": func(in *Input, _ int) bool {
		in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, corev1.Container{Name: "added"})
		return true
	},
	"the kubelet restarts all containers": func(in *Input, _ int) bool {
		in.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
		return true
	},
	"it is being deleted": func(in *Input, _ int) bool { in.Pod.DeletionTimestamp = &metav1.Time{Time: now}; return true },
	"it succeeded":        func(in *Input, _ int) bool { in.Pod.Status.Phase = corev1.PodSucceeded; return true },
	"it failed":           func(in *Input, _ int) bool { in.Pod.Status.Phase = corev1.PodFailed; return true },
	"nobody owns it":      func(in *Input, _ int) bool { in.Pod.OwnerReferences = nil; return true },
	"its Job does not control it": func(in *Input, _ int) bool {
		for i := range in.Pod.OwnerReferences {
			in.Pod.OwnerReferences[i].Controller = []*bool{nil, new(false)}[i%2]
		}
		return true
	},
	"a Job of another group owns it": func(in *Input, n int) bool {
		for i := range in.Pod.OwnerReferences {
			in.Pod.OwnerReferences[i].APIVersion = []string{"batch.volcano.sh/v1alpha1", "v1", "", "batch", "Batch/v1", "batch/v1/x", "/v1", "xbatch/v1"}[n%8]
		}
		return true
	},
	"another kind owns it": func(in *Input, n int) bool {
		for i := range in.Pod.OwnerReferences {
			in.Pod.OwnerReferences[i].Kind = []string{"CronJob", "job", "Jobs", "", "Job ", "JobSet"}[n%6]
		}
		return true
	},
	"its proxy is a native sidecar": func(in *Input, _ int) bool {
		for _, c := range in.Pod.Spec.Containers {
			if c.Name == istio.ProxyContainer {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, c)
			}
		}
		return dropProxy(in)
	},
	"it has no proxy (ambient)": func(in *Input, _ int) bool { return dropProxy(in) },
	"its proxy is a gateway": func(in *Input, n int) bool {
		return setProxyArgs(in, [][]string{{"proxy", "router"}, {"proxy", "--log_output_level=x", "router"}, {"proxy", "router", "sidecar"}}[n%3])
	},
	"its proxy is not known to run": func(in *Input, _ int) bool {
		in.Pod.Status.ContainerStatuses = slices.DeleteFunc(in.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == istio.ProxyContainer })
		return true
	},
	"it uses the node's network": func(in *Input, _ int) bool { in.Pod.Spec.HostNetwork = true; return true },
	"it opted out": func(in *Input, _ int) bool {
		metav1.SetMetaDataAnnotation(&in.Pod.ObjectMeta, v1alpha1.ModeAnnotation, "Disabled")
		return true
	},
	"the mode is DryRun":    func(in *Input, _ int) bool { in.Settings.Mode = v1alpha1.ModeDryRun; return true },
	"the mode is Disabled":  func(in *Input, _ int) bool { in.Settings.Mode = v1alpha1.ModeDisabled; return true },
	"the mode is not known": func(in *Input, _ int) bool { in.Settings.Mode = "enforce"; return true },
	"everything is ignored": func(in *Input, _ int) bool {
		for i := range in.Pod.Spec.Containers {
			in.Settings.IgnoredContainers = append(in.Settings.IgnoredContainers, in.Pod.Spec.Containers[i].Name)
		}
		return true
	},
}

// setApp gives the n-th app container a state, nil for no status. It returns false where the pod has none.
func setApp(in *Input, n int, state *corev1.ContainerState) bool {
	var apps []string
	for i := range in.Pod.Spec.Containers {
		if name := in.Pod.Spec.Containers[i].Name; name != istio.ProxyContainer && !slices.Contains(in.Settings.IgnoredContainers, name) {
			apps = append(apps, name)
		}
	}
	if len(apps) == 0 {
		return false
	}
	name := apps[n%len(apps)]
	in.Pod.Status.ContainerStatuses = slices.DeleteFunc(in.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if state != nil {
		in.Pod.Status.ContainerStatuses = append(in.Pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: *state})
	}
	return true
}

func setProxyArgs(in *Input, args []string) bool {
	for i := range in.Pod.Spec.Containers {
		if c := &in.Pod.Spec.Containers[i]; c.Name == istio.ProxyContainer {
			c.Command, c.Args = nil, args
		}
	}
	return true
}

func dropProxy(in *Input) bool {
	in.Pod.Spec.Containers = slices.DeleteFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == istio.ProxyContainer })
	return true
}

// FuzzNeverQuit takes any pod and changes one thing about it that forbids a quit.
func FuzzNeverQuit(f *testing.F) {
	addPods(f)
	f.Fuzz(func(t *testing.T, data []byte, n uint64) {
		in := (&source{data}).input()
		for what, spoil := range spoilers {
			spoiled := in
			spoiled.Pod = in.Pod.DeepCopy()
			if !spoil(&spoiled, int(n%1000)) {
				continue
			}
			if d := Decide(spoiled); d.Verdict == Quit {
				t.Errorf("%s, though %s", d.Verdict, what)
			}
		}
	})
}

// TestSpoilers shows that the pod which each of them spoils would be asked to quit.
func TestSpoilers(t *testing.T) {
	for what, spoil := range spoilers {
		t.Run(what, func(t *testing.T) {
			in := test{pod: build.MakePod("pod").App("app", build.Exited(0)).App("other", build.Exited(0)).Proxy(build.Running())}.input()
			if d := Decide(in); d.Verdict != Quit {
				t.Fatalf("the pod is spoiled before: %s %s", d.Verdict, d.Reason)
			}
			for n := range 10 {
				spoiled := in
				spoiled.Pod = in.Pod.DeepCopy()
				if !spoil(&spoiled, n) {
					t.Fatal("it does not apply")
				}
				if d := Decide(spoiled); d.Verdict == Quit {
					t.Errorf("%s %s", d.Verdict, d.Reason)
				}
			}
		})
	}
}

func addPods(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0, 0}, uint64(1))                               // a stuck pod
	f.Add([]byte{0, 0, 0, 0, 3, 6, 0, 0, 0, 6, 0, 0, 0, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, uint64(2)) // of three apps
	f.Add([]byte{1, 0, 0, 0, 1, 6, 3, 0, 0, 0, 0, 0, 0, 0}, uint64(3))                               // a failure under OnFailure
	f.Add([]byte{0, 0, 4, 6, 3, 0, 0, 0, 0, 2, 6, 0, 0, 0, 0}, uint64(4))                            // a failed init container
	f.Add([]byte{0, 0, 0, 7, 3, 3, 2, 0, 0, 2, 6, 0, 3, 2, 7, 0, 1}, uint64(5))                      // native, with rules
}
