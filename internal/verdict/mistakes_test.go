// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Mistakes that are easily made when sidecars are ended for Jobs, each with the case that shows it.

package verdict

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestWhatOthersGotWrong(t *testing.T) {
	decide := func(pod *build.Pod, h History, at time.Time) Reason {
		in := test{pod: pod}.input()
		in.History, in.Now = h, at
		return Decide(in).Reason
	}
	expect := func(t *testing.T, what string, got, want Reason) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	underOnFailure := func(app *corev1.ContainerState) *build.Pod {
		return build.MakePod("pod").RestartPolicy(onFailure).App("app", app).Proxy(build.Running())
	}
	underNever := func(app *corev1.ContainerState) *build.Pod {
		return build.MakePod("pod").App("app", app).Proxy(build.Running())
	}

	t.Run("the proxy quit on any end of the app, and the retry ran without one", func(t *testing.T) {
		for what, step := range map[string]struct {
			app  *corev1.ContainerState
			want Reason
		}{
			"failed":          {build.Exited(1), AppWillRestart},
			"killed":          {build.Exited(137), AppWillRestart},
			"about to retry":  {build.Waiting("CrashLoopBackOff"), AppWaiting},
			"retrying":        {build.Running(), AppRunning},
			"succeeded":       {build.Exited(0), Stuck},
			"already retried": {build.ExitedFor(1, "Error"), AppWillRestart},
		} {
			expect(t, what, decide(underOnFailure(step.app), History{}, now), step.want)
		}
	})

	t.Run("the proxy quit on exit code 0 only, and failed Jobs hung", func(t *testing.T) {
		for _, code := range []int32{1, 3, 42, 128, 137, 143, 255, -1} {
			expect(t, "under Never", decide(underNever(build.Exited(code)), History{}, now), Stuck)
		}
		expect(t, "one of two failed", decide(underNever(build.Exited(0)).App("other", build.Exited(1)), History{}, now), Stuck)
		expect(t, "the container's own Never",
			decide(build.MakePod("pod").RestartPolicy(onFailure).App("app", build.Exited(1), build.Restart(never)).Proxy(build.Running()), History{}, now), Stuck)
	})

	t.Run("the pod had to have succeeded first, which a pod with a live proxy never has", func(t *testing.T) {
		for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodUnknown, ""} {
			expect(t, string(phase), decide(underNever(build.Exited(0)).Phase(phase), History{}, now), Stuck)
		}
	})

	t.Run("the end was known by reason strings, and some were forgotten", func(t *testing.T) {
		for _, reason := range []string{"", "Completed", "Error", "OOMKilled", "ContainerCannotRun", "StartError", "DeadlineExceeded", "Evicted", "ContainerStatusUnknown"} {
			expect(t, reason+" under Never", decide(underNever(build.ExitedFor(137, reason)), History{}, now), Stuck)
			expect(t, reason+" under OnFailure", decide(underOnFailure(build.ExitedFor(137, reason)), History{}, now), AppWillRestart)
			expect(t, reason+" with code 0", decide(underOnFailure(build.ExitedFor(0, reason)), History{}, now), Stuck)
		}
		expect(t, "waiting, as Completed", decide(underNever(build.Waiting("Completed")), History{}, now), AppWaiting)
	})

	t.Run("a container without a status was not seen", func(t *testing.T) {
		expect(t, "one of two", decide(underNever(build.Exited(0)).App("slow", nil), History{}, now), AppStatusUnknown)
		expect(t, "all", decide(build.MakePod("pod").App("app", nil).Proxy(build.Running()), History{}, now), AppStatusUnknown)
		expect(t, "no status but the proxy's, of an empty list of apps", decide(build.MakePod("pod").Proxy(build.Running()), History{}, now), NoAppContainers)
		expect(t, "an init container", decide(underNever(build.Exited(0)).Init("slow", nil), History{}, now), InitPending)
	})

	t.Run("a proxy whose end was missed ran for ever", func(t *testing.T) {
		expect(t, "nothing is remembered, a year later", decide(underNever(build.Exited(0)), History{}, now.AddDate(1, 0, 0)), Stuck)
	})

	t.Run("the reply was taken for success", func(t *testing.T) {
		h := History{}.Asked(now, 5*time.Second)
		pod := underNever(build.Exited(0))
		expect(t, "just asked", decide(pod, h, now), Quitting)
		expect(t, "still running when it was to be gone", decide(pod, h, h.AskAgainAt), Stuck)
		h = h.Asked(h.AskAgainAt, 5*time.Second)
		expect(t, "asked twice", decide(pod, h, h.AskAgainAt.Add(-time.Millisecond)), Quitting)
		expect(t, "still running", decide(pod, h, h.AskAgainAt), Stuck)
		expect(t, "seen terminated", decide(build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Exited(0)), h, now), ProxyTerminated)
	})

	t.Run("the proxy quit while another container was still uploading", func(t *testing.T) {
		expect(t, "uploading", decide(underNever(build.Exited(0)).App("upload", build.Running()), History{}, now), AppRunning)
		expect(t, "uploading before the app in the list",
			decide(build.MakePod("pod").App("upload", build.Running()).App("app", build.Exited(0)).Proxy(build.Running()), History{}, now), AppRunning)
		expect(t, "about to retry", decide(underOnFailure(build.Exited(0)).App("upload", build.Exited(1)), History{}, now), AppWillRestart)
		expect(t, "done", decide(underNever(build.Exited(0)).App("upload", build.Exited(0)), History{}, now), Stuck)
	})

	t.Run("the proxy was restarted after it had quit, and nobody asked again", func(t *testing.T) {
		h := History{}.Asked(now, 5*time.Second)
		restarting := func(proxy *corev1.ContainerState) *build.Pod {
			return build.MakePod("pod").RestartPolicy(onFailure).App("app", build.Exited(0)).Proxy(proxy)
		}
		expect(t, "ended with 137 under OnFailure", decide(restarting(build.Exited(137)), h, now), ProxyNotRunning)
		expect(t, "waiting for its restart", decide(restarting(build.Waiting("CrashLoopBackOff")), h, now), ProxyNotRunning)
		expect(t, "running again, of which nothing is remembered", decide(restarting(build.Running()), History{}, now), Stuck)
		expect(t, "quit with 0 under OnFailure", decide(restarting(build.Exited(0)), h, now), ProxyTerminated)
	})

	t.Run("the app ended before the proxy was up, and the refused connection was taken for a failure", func(t *testing.T) {
		pod := build.MakePod("pod").App("app", build.Exited(1))
		expect(t, "the proxy is being created", decide(pod.Proxy(build.Waiting("ContainerCreating")), History{}, now), ProxyNotRunning)
		running, h := underNever(build.Exited(1)), History{}
		at := now
		for range 100 {
			h = h.Failed(true, at, 0.5)
			expect(t, "refused", decide(running, h, at), Backoff)
			at = h.RetryAt
			expect(t, "due again", decide(running, h, at), Stuck)
		}
	})

	t.Run("the rule lived in the watch alone, and a later look quit a live proxy", func(t *testing.T) {
		for _, h := range []History{{}, History{}.Failed(false, now, 0), History{}.Asked(now, 0)} {
			expect(t, "retried, with a history", decide(underOnFailure(build.Running()), h, now.Add(time.Hour)), AppRunning)
		}
	})

	t.Run("a tenant's text was copied into an event", func(t *testing.T) {
		const text = "tenant's own text"
		state := build.ExitedFor(1, text)
		state.Terminated.Message = text
		waiting := build.Waiting(text)
		waiting.Waiting.Message = text
		for _, pod := range []*build.Pod{
			underNever(state), underOnFailure(state), underNever(waiting), underNever(build.Exited(0)).Init("init", state),
			underNever(build.Exited(0)).Annotation("status.sidecar.istio.io/port", text).Annotation("proxy.istio.io/config", text).Label("app", text),
			underNever(build.Exited(0)).With(func(pod *corev1.Pod) { pod.Status.Message, pod.Status.Reason = text, text }),
		} {
			d := Decide(test{pod: pod}.input())
			said := d.Message + strings.Join(d.Notes, "") + d.Proxy.StatusPort.Source
			for _, c := range d.Containers {
				said += c.Why
			}
			if strings.Contains(said, text) {
				t.Errorf("the decision says: %s", said)
			}
		}
	})
}
