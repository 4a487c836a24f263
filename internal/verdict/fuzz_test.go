// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Rules that hold for every pod: whole pods made of bytes, and what must never be decided about them.

package verdict

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// source deals out the bytes of a fuzz input; zeros once they are spent.
type source struct{ rest []byte }

func (s *source) below(n int) int {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return int(b) % n
}

// rarely is true for one byte value in eight, so that most fuzzed pods come far down the table.
func (s *source) rarely() bool { return s.below(8) == 7 }

func choice[T any](s *source, options ...T) T { return options[s.below(len(options))] }

func (s *source) state() *corev1.ContainerState {
	codes := []int32{0, 0, 0, 1, 3, 137}
	switch s.below(8) {
	case 0:
		return nil
	case 1:
		return &corev1.ContainerState{}
	case 2:
		return build.Waiting("CrashLoopBackOff")
	case 3:
		return build.Running()
	case 4:
		return build.ExitedFor(choice(s, codes...), choice(s, "Completed", "OOMKilled", "RestartingAllContainers"))
	case 5:
		return build.ExitedAt(choice(s, codes...), choice(s, time.Time{}, now.Add(time.Hour), now.Add(-time.Hour)))
	}
	return build.Exited(choice(s, codes...))
}

func (s *source) change(c *corev1.Container) {
	if s.below(4) == 3 {
		c.RestartPolicy = new(choice(s, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyAlways))
	}
	for range s.below(8) / 6 {
		build.Rule(choice(s, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers),
			choice(s, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn), choice[int32](s, 0, 1, 3))(c)
	}
	if c.Name == "istio-proxy" && s.rarely() {
		c.Args = choice(s, []string{"proxy", "router"}, []string{"proxy"}, nil)
	}
	if s.rarely() {
		build.Env(choice(s, "DISABLE_ENVOY", "PROXY_CONFIG"), choice(s, "true", "statusPort: 15099", "{"))(c)
	}
}

func (s *source) pod() *corev1.Pod {
	p := build.MakePod("pod").RestartPolicy(choice(s, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways, "")).
		Phase(choice(s, corev1.PodRunning, corev1.PodPending, corev1.PodUnknown, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed))
	for i := range s.below(8) / 4 {
		p.Init("init"+strconv.Itoa(i), s.state(), s.change)
	}
	if s.rarely() {
		p.Init("istio-proxy", s.state(), s.change)
	}
	for i := range s.below(4) {
		p.App("app"+strconv.Itoa(i), s.state(), s.change)
	}
	if !s.rarely() {
		p.Proxy(choice(s, build.Running(), build.Running(), build.Running(), s.state()), s.change)
	}
	if s.rarely() {
		p.App("late", s.state(), s.change)
	}
	if s.rarely() {
		p.With(ephemeral(choice(s, "debugger", "istio-proxy"), s.state()))
	}
	if s.rarely() {
		p.Annotation(choice(s, "jobmesh.dev/mode", "status.sidecar.istio.io/port", "proxy.istio.io/config"), choice(s, "Disabled", "0", "statusPort: 0", "15020"))
	}
	if s.rarely() {
		p.Owner(choice(s, "batch/v1", "batch.volcano.sh/v1alpha1", "apps/v1", ""), choice(s, "Job", "", "ReplicaSet"))
	}
	if s.rarely() {
		p.HostNetwork()
	}
	if s.rarely() {
		p.Deadline(int64(s.below(256)))
	}
	if s.rarely() {
		p.With(deletedPod)
	}
	if s.rarely() {
		p.With(func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: choice(s, corev1.ConditionTrue, corev1.ConditionFalse)}}
		})
	}
	return p.Obj()
}

func (s *source) input() Input {
	in := test{pod: build.MakePod("pod")}.input()
	in.Pod = s.pod()
	in.Settings.Mode = choice(s, v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModeDisabled, "")
	in.Settings.ExecFallback = s.below(2) == 1
	if s.rarely() {
		in.Settings.IgnoredContainers = []string{choice(s, "app0", "istio-proxy", "init0")}
	}
	if s.rarely() {
		in.Settings.GracePeriod = choice(s, time.Minute, 24*time.Hour, -time.Minute)
		in.History.SeenFinished = choice(s, time.Time{}, now, now.Add(-time.Minute))
		in.JobDeadline = choice(s, time.Time{}, now.Add(time.Minute))
	}
	if s.rarely() {
		in.History = in.History.Failed(s.below(2) == 1, now, 0.5)
	}
	if s.rarely() {
		in.History = in.History.Asked(now, time.Second)
	}
	return in
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0, 0})          // a stuck pod
	f.Add([]byte{1, 0, 0, 0, 1, 6, 3, 0, 0, 0, 0, 0, 0, 0})          // a failure under OnFailure
	f.Add([]byte{0, 0, 4, 6, 3, 0, 0, 0, 0, 2, 6, 0, 0, 0, 0})       // a failed init container
	f.Add([]byte{0, 0, 0, 7, 3, 3, 2, 0, 0, 2, 6, 0, 3, 2, 7, 0, 1}) // native, with rules
	f.Fuzz(func(t *testing.T, data []byte) {
		in := (&source{data}).input()
		before := in.Pod.DeepCopy()
		d := Decide(in)

		if diff := cmp.Diff(before, in.Pod); diff != "" {
			t.Errorf("Decide changed the pod:\n%s", diff)
		}
		if diff := cmp.Diff(d, Decide(in)); diff != "" {
			t.Errorf("Decide says two things about one pod:\n%s", diff)
		}
		checkShape(t, in, &d)
		if d.Verdict == Quit || d.Verdict == Observe || d.Verdict == Blocked || d.IsStuck() {
			for _, why := range objections(in) {
				t.Errorf("%s %s, though %s", d.Verdict, d.Reason, why)
			}
		}
		if d.Verdict == Quit {
			checkQuit(t, in)
		}
		checkRecheck(t, in, &d)
	})
}

// checkShape holds every decision to its contract.
func checkShape(t *testing.T, in Input, d *Decision) {
	if !slices.ContainsFunc(table, func(row struct {
		verdict Verdict
		reason  Reason
	}) bool {
		return row.verdict == d.Verdict && row.reason == d.Reason
	}) {
		t.Errorf("%s %s is no row of the table", d.Verdict, d.Reason)
	}
	if d.Message == "" {
		t.Errorf("%s %s has no message", d.Verdict, d.Reason)
	}
	spec := &in.Pod.Spec
	if got, want := len(d.Containers), len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers); got != want {
		t.Errorf("%d containers in the decision, %d in the pod", got, want)
	}
	for _, c := range d.Containers {
		if c.Name == "" || c.Role == "" || c.Fact.State == "" || c.Why == "" {
			t.Errorf("a container is told by halves: %+v", c)
		}
	}
}

// objections say, from the pod alone and without the code under test, why its proxy must not be touched.
func objections(in Input) []string {
	var all []string
	pod := in.Pod
	object := func(holds bool, why string) {
		if holds {
			all = append(all, why)
		}
	}
	object(len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].Kind != "Job" || pod.OwnerReferences[0].APIVersion != "batch/v1", "it is not a Job's pod")
	object(pod.DeletionTimestamp != nil, "it is being deleted")
	object(pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, "it has finished")
	object(pod.Annotations["jobmesh.dev/mode"] == "Disabled", "it opted out")
	object(in.Settings.Mode == v1alpha1.ModeDisabled, "the mode is Disabled")
	object(len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue, "all containers restart")

	states := map[string]corev1.ContainerState{}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		states[status.Name] = status.State
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			continue
		}
		// The init container of the proxy's name shares it with the proxy, whose state the map then holds.
		end := states[c.Name].Terminated
		object(c.Name != "istio-proxy" && (end == nil || end.ExitCode != 0), "init container "+c.Name+" has not succeeded")
	}
	apps, proxies := 0, 0
	for _, c := range pod.Spec.Containers {
		if c.Name == "istio-proxy" {
			proxies++
			object(states[c.Name].Running == nil, "the proxy does not run")
			object(slices.Contains(c.Args, "router"), "it is a gateway")
			continue
		}
		if slices.Contains(in.Settings.IgnoredContainers, c.Name) {
			continue
		}
		apps++
		end := states[c.Name].Terminated
		switch {
		case end == nil:
			object(true, c.Name+" has not ended")
		case end.Reason == "RestartingAllContainers":
			object(true, c.Name+" ended to be restarted")
		case c.RestartPolicy == nil:
			policy := pod.Spec.RestartPolicy
			object(policy != corev1.RestartPolicyNever && (policy != corev1.RestartPolicyOnFailure || end.ExitCode != 0), c.Name+" is restarted by the pod's policy")
		default:
			object(*c.RestartPolicy == corev1.ContainerRestartPolicyAlways, c.Name+" is always restarted")
			object(*c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure && end.ExitCode != 0, c.Name+" is restarted on failure")
		}
	}
	object(apps == 0, "it has no app")
	object(proxies == 0, "it has no classic proxy")
	return all
}

func checkQuit(t *testing.T, in Input) {
	if in.Settings.Mode != v1alpha1.ModeEnforce {
		t.Errorf("Quit under the mode %q", in.Settings.Mode)
	}
	if in.Pod.Spec.HostNetwork {
		t.Error("Quit on the node's network")
	}
	if in.Pod.Annotations["status.sidecar.istio.io/port"] == "0" && !in.Settings.ExecFallback {
		t.Error("Quit without a port")
	}
	if in.History.RetryAt.After(in.Now) || in.History.AskAgainAt.After(in.Now) {
		t.Error("Quit before the next attempt is due")
	}
}

// checkRecheck looks again when the decision says so: what it waited for must be over, and not a moment before.
func checkRecheck(t *testing.T, in Input, d *Decision) {
	timed := d.Reason == GracePeriod || d.Reason == Backoff || d.Reason == Quitting
	if timed != (d.RecheckAfter > 0) || d.RecheckAfter < 0 {
		t.Errorf("%s is looked at again after %s", d.Reason, d.RecheckAfter)
	}
	if !timed {
		return
	}
	// The operator notes at the first look when it saw the app finished, and goes by its own clock from then on. A node's may be ahead.
	if in.History.SeenFinished.IsZero() {
		in.History.SeenFinished = in.Now.Add(-max(0, in.Now.Sub(d.AppFinishedAt)))
	}
	in.Now = in.Now.Add(d.RecheckAfter - 1)
	if again := Decide(in); again.Reason != d.Reason {
		t.Errorf("%s ends before its time, as %s", d.Reason, again.Reason)
	}
	in.Now = in.Now.Add(1)
	if again := Decide(in); again.Reason == d.Reason {
		t.Errorf("%s does not end when it should", d.Reason)
	}
}
