// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves the faults of nodes and what a fleet leaves behind.

package simnode_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/test/simnode"
)

// newFleet starts a fleet of one node, and returns the node selector that binds a Pod to it.
func newFleet(t *testing.T, prefix string) (*simnode.Fleet, map[string]string) {
	t.Helper()
	f, err := simnode.Start(t.Context(), config, simnode.Options{NamePrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Stop()
		// Or the scheduler would go on binding Pods to it.
		if err := client.CoreV1().Nodes().Delete(context.Background(), f.Node(0).Name(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return f, map[string]string{corev1.LabelHostname: prefix + "-0"}
}

func TestNodeFaults(t *testing.T) {
	f, selector := newFleet(t, "faulty")
	node := f.Node(0)
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	spec.Spec.NodeSelector = selector
	job := createJob(t, newNamespace(t), spec)
	pod := waitPod(t, job, "that is stuck", stuck)
	for name, tc := range map[string]struct {
		fault   simnode.Fault
		wantErr string
	}{
		"hang after upgrade": {simnode.FaultHangAfterUpgrade, "EOF"},
		"server error":       {simnode.FaultServerError, "simulated"},
		"silent success":     {simnode.FaultSilentSuccess, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			node.SetFault(tc.fault)
			defer node.SetFault(simnode.FaultNone)
			got := ask(t, pod.Namespace, pod.Name, "POST", 15020, false)
			if got.err == nil || !strings.Contains(got.err.Error(), tc.wantErr) {
				t.Errorf("want error %q, got %+v", tc.wantErr, got)
			}
		})
	}
	t.Run("hang before upgrade", func(t *testing.T) {
		node.SetFault(simnode.FaultHangBeforeUpgrade)
		answered := make(chan answer, 1)
		go func() { answered <- ask(t, pod.Namespace, pod.Name, "POST", 15020, false) }()
		select {
		case got := <-answered:
			t.Errorf("want no answer, got %+v", got)
		case <-time.After(time.Second):
		}
		if open := f.Counters().OpenPortForwards; open != 1 {
			t.Errorf("want one open connection, got %d", open)
		}
		node.SetFault(simnode.FaultNone)
		<-answered
	})
	t.Run("offline", func(t *testing.T) {
		if err := node.SetOffline(true); err != nil {
			t.Fatal(err)
		}
		state, _ := f.Pod(pod.Namespace, pod.Name)
		if got := askDirectly(t, "POST", state.IP, 15020); got.status != 403 {
			t.Errorf("the Pod should run on: want 403, got %+v", got)
		}
		writes := f.Counters().StatusWrites
		time.Sleep(300 * time.Millisecond)
		if now := f.Counters().StatusWrites; now != writes {
			t.Errorf("an offline node wrote %d statuses", now-writes)
		}
		if err := node.SetOffline(false); err != nil {
			t.Fatal(err)
		}
	})
	if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, false); got.status != 200 {
		t.Fatalf("want 200 after all faults, got %+v", got)
	}
	waitJob(t, job, batchv1.JobComplete)
	eventually(t, "every connection to close", func() (bool, error) {
		c := f.Counters()
		return c.OpenPortForwards == 0 && c.OpenDials == 0, nil
	})
}

func TestPrematureQuitIsCounted(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Run: duration(-1)}}}.Annotate(&spec)
	pod := waitPod(t, createJob(t, newNamespace(t), spec), "that runs",
		func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	before := fleet.Counters().QuitsPremature
	if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, noWebSocket == ""); got.status != 200 {
		t.Errorf("want 200, got %+v", got)
	}
	if state, _ := fleet.Pod(pod.Namespace, pod.Name); state.QuitsPremature != 1 || fleet.Counters().QuitsPremature <= before {
		t.Errorf("want one premature quit, got %+v", state)
	}
}

func TestHostNetworkIsNeverDialled(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	spec.Spec.HostNetwork = true
	pod := waitPod(t, createJob(t, newNamespace(t), spec), "that is stuck", stuck)
	if got := ask(t, pod.Namespace, pod.Name, "POST", 15020, noWebSocket == ""); got.err == nil || got.stream == "" {
		t.Errorf("want an error on the error stream, got %+v", got)
	}
	if fleet.Counters().DialsToHostNetwork == 0 {
		t.Error("the dial was not counted")
	}
}

func TestWaitingContainerKeepsThePodPending(t *testing.T) {
	t.Parallel()
	spec := template(corev1.RestartPolicyNever, app(), proxy())
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Waiting: "ImagePullBackOff"}}}.Annotate(&spec)
	pod := waitPod(t, createJob(t, newNamespace(t), spec), "with a running proxy",
		func(p *corev1.Pod) bool { return statuses(p)["istio-proxy"].State.Running != nil })
	if w := statuses(pod)["app"].State.Waiting; w == nil || w.Reason != "ImagePullBackOff" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("want Pending and ImagePullBackOff, got %+v", pod.Status)
	}
}
