// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the tests of decisions share: a stuck pod, a case, and how a decision is compared.

package verdict

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// now is ten seconds after the app finished.
var now = build.FinishedAt.Add(10 * time.Second)

const (
	onFailure = corev1.RestartPolicyOnFailure
	never     = corev1.ContainerRestartPolicyNever
)

// answer is the part of a decision that a case is about.
type answer struct {
	Verdict      Verdict
	Reason       Reason
	Message      string
	RecheckAfter time.Duration
}

// stuck is what most cases vary: the answer for a pod that is to be asked.
var stuck = answer{Quit, Stuck, "Every app container has finished for good, and istio-proxy still runs.", 0}

type test struct {
	pod *build.Pod
	// with changes the input: an enforcing policy "p" without more, no history, ten seconds after the app finished.
	with func(*Input)
	want answer
	// wantContainers are the containers as containerLine writes them; nil where the case is not about them.
	wantContainers []string
}

func (tc test) input() Input {
	in := Input{Pod: tc.pod.Obj(), Settings: policy.Settings{Policy: "p", Mode: v1alpha1.ModeEnforce, QuitTimeout: 10 * time.Second}, Now: now}
	if tc.with != nil {
		tc.with(&in)
	}
	return in
}

func (tc test) check(t *testing.T) {
	t.Helper()
	d := Decide(tc.input())
	if diff := cmp.Diff(tc.want, answer{d.Verdict, d.Reason, d.Message, d.RecheckAfter}); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	if tc.wantContainers == nil {
		return
	}
	var got []string
	for i := range d.Containers {
		got = append(got, containerLine(&d.Containers[i]))
	}
	if diff := cmp.Diff(tc.wantContainers, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

// containerLine is "name Role State[ final]: why".
func containerLine(c *Container) string {
	final := ""
	if c.Fact.Final {
		final = " final"
	}
	return fmt.Sprintf("%s %s %s%s: %s", c.Name, c.Role, c.Fact.State, final, c.Why)
}

// stuckPod is a pod whose app succeeded while the proxy runs.
func stuckPod() *build.Pod {
	return build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running())
}

func mode(m v1alpha1.Mode) func(*Input) {
	return func(in *Input) { in.Settings.Mode = m }
}

func grace(d time.Duration) func(*Input) {
	return func(in *Input) { in.Settings.GracePeriod = d }
}

func ignoring(names ...string) func(*Input) {
	return func(in *Input) { in.Settings.IgnoredContainers = names }
}

func withExec(in *Input) { in.Settings.ExecFallback = true }

func ungoverned(m v1alpha1.Mode) func(*Input) {
	return func(in *Input) { in.Settings = policy.Settings{Mode: m} }
}

func deletedPod(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: now} }

// ephemeral adds an ephemeral container in a state; nil leaves it without a status.
func ephemeral(name string, state *corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers,
			corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
		if state != nil {
			pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, State: *state})
		}
	}
}

func waitsFor(reason Reason, message string) answer { return answer{Wait, reason, message, 0} }

func ignored(reason Reason, message string) answer { return answer{Ignore, reason, message, 0} }

func blocked(reason Reason, message string) answer { return answer{Blocked, reason, message, 0} }
