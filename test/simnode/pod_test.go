// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves the Pods' lives against the real Job controller.

package simnode_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/test/simnode"
)

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func TestPlainJobCompletes(t *testing.T) {
	t.Parallel()
	job := createJob(t, newNamespace(t), template(corev1.RestartPolicyNever, app()))
	waitJob(t, job, batchv1.JobComplete)
	pod := waitPod(t, job, "that succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	s := pod.Status.ContainerStatuses[0]
	if s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || s.ContainerID == "" || pod.Status.StartTime == nil {
		t.Errorf("no status as a kubelet writes it: %+v", pod.Status)
	}
}

func TestFailedJobFails(t *testing.T) {
	t.Parallel()
	pod := template(corev1.RestartPolicyNever, app())
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {ExitCodes: []int32{3}, Reason: "OOMKilled"}}}.Annotate(&pod)
	job, err := client.BatchV1().Jobs(newNamespace(t)).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "job-"},
		Spec:       batchv1.JobSpec{Template: pod, BackoffLimit: new(int32(0))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitJob(t, job, batchv1.JobFailed)
	failed := waitPod(t, job, "that failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if got := failed.Status.ContainerStatuses[0].State.Terminated; got.ExitCode != 3 || got.Reason != "OOMKilled" {
		t.Errorf("want exit code 3 and OOMKilled, got %+v", got)
	}
}

func TestMeshedJobIsStuckUntilAsked(t *testing.T) {
	t.Parallel()
	for name, webSocket := range map[string]bool{"SPDY": false, "WebSocket": true} {
		t.Run(name, func(t *testing.T) {
			if webSocket && noWebSocket != "" {
				t.Skip(noWebSocket)
			}
			t.Parallel()
			job := createJob(t, newNamespace(t), template(corev1.RestartPolicyNever, app(), proxy()))
			waitPod(t, job, "that is stuck", stuck)
			time.Sleep(500 * time.Millisecond)
			pod := waitPod(t, job, "that is still stuck", stuck)
			if pod.Status.Phase != corev1.PodRunning {
				t.Errorf("want the phase Running, got %s", pod.Status.Phase)
			}

			want := answer{status: 403, body: "Only requests from localhost are allowed"}
			if got := askDirectly(t, "POST", pod.Status.PodIP, 15020); !cmp.Equal(want, got, cmp.AllowUnexported(answer{})) {
				t.Errorf("from 127.0.0.1: want %+v, got %+v", want, got)
			}
			if got := askDirectly(t, "GET", pod.Status.PodIP, 15020); got.status != 403 {
				t.Errorf("the peer is checked before the method: want 403, got %+v", got)
			}
			if got := ask(t, pod.Namespace, pod.Name, "GET", 15020, webSocket); got.status != 405 {
				t.Errorf("GET: want 405, got %+v", got)
			}
			want = answer{status: 200, body: "OK"}
			if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, webSocket); !cmp.Equal(want, got, cmp.AllowUnexported(answer{})) {
				t.Errorf("want %+v, got %+v", want, got)
			}
			waitJob(t, job, batchv1.JobComplete)
			state, _ := fleet.Pod(pod.Namespace, pod.Name)
			if state.Quits != 1 || state.QuitsPremature != 0 {
				t.Errorf("want one quit, none premature, got %+v", state)
			}
		})
	}
}

func TestOnFailureRestartsBesideTheProxy(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyOnFailure, app(), proxy())
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {ExitCodes: []int32{1, 1, 0}}}}.Annotate(&spec)
	job := createJob(t, newNamespace(t), spec)
	waitPod(t, job, "backing off", func(p *corev1.Pod) bool {
		w := statuses(p)["app"].State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff"
	})
	pod := waitPod(t, job, "whose app has succeeded", func(p *corev1.Pod) bool {
		s := statuses(p)["app"]
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
	s := statuses(pod)
	if s["app"].RestartCount != 2 || s["istio-proxy"].RestartCount != 0 || s["istio-proxy"].State.Running == nil {
		t.Errorf("want two restarts of the app beside a running proxy, got %+v", pod.Status.ContainerStatuses)
	}
	if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, noWebSocket == ""); got.status != 200 {
		t.Errorf("want 200, got %+v", got)
	}
	waitJob(t, job, batchv1.JobComplete)
}

func TestNativeSidecarJobCompletes(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app())
	sidecar := proxy()
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	spec.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "prepare"}, sidecar}
	simnode.ProxyScript{Drain: duration(500 * time.Millisecond)}.Annotate(&spec)
	job := createJob(t, newNamespace(t), spec)
	waitJob(t, job, batchv1.JobComplete)
	pod := waitPod(t, job, "that succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	s := statuses(pod)
	drained := s["istio-proxy"].State.Terminated.FinishedAt.Sub(s["app"].State.Terminated.FinishedAt.Time)
	if drained < 0 || s["istio-proxy"].State.Terminated.ExitCode != 0 {
		t.Errorf("want the sidecar to end after the app with 0, got %+v", pod.Status)
	}
}

func TestExecQuits(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	spec.Annotations = map[string]string{"status.sidecar.istio.io/port": "0"}
	job := createJob(t, newNamespace(t), spec)
	pod := waitPod(t, job, "that is stuck", stuck)
	if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, noWebSocket == ""); got.err == nil {
		t.Errorf("nothing should listen, got %+v", got)
	}
	if err := execute(t, pod, "curl", "-X", "POST", "localhost:15000/quitquitquit"); err == nil {
		t.Error("there is no curl in the proxy's image")
	}
	if err := execute(t, pod, "pilot-agent", "request", "POST", "quitquitquit"); err != nil {
		t.Error(err)
	}
	waitJob(t, job, batchv1.JobComplete)
}

func TestDeletedPodGoes(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Run: duration(-1)}}}.Annotate(&spec)
	simnode.ProxyScript{Drain: duration(300 * time.Millisecond)}.Annotate(&spec)
	spec.Name = "deleted"
	namespace := newNamespace(t)
	pods := client.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod to run", func() (bool, error) {
		p, err := pods.Get(t.Context(), spec.Name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	if err := pods.Delete(t.Context(), spec.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Pod to go", func() (bool, error) {
		_, err := pods.Get(t.Context(), spec.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	eventually(t, "the fleet to forget the Pod", func() (bool, error) { // it hears of it a moment later
		_, ok := fleet.Pod(namespace, spec.Name)
		return !ok, nil
	})
	if got := ask(t, namespace, spec.Name, "POST", 15020, noWebSocket == ""); got.err == nil {
		t.Errorf("want an error, got %+v", got)
	}
}

func TestDeadlineFailsThePod(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	spec.Spec.ActiveDeadlineSeconds = new(int64(1))
	simnode.ProxyScript{Drain: duration(-1)}.Annotate(&spec)
	job := createJob(t, newNamespace(t), spec)
	pod := waitPod(t, job, "that failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if pod.Status.Reason != "DeadlineExceeded" {
		t.Errorf("want DeadlineExceeded, got %+v", pod.Status)
	}
}
