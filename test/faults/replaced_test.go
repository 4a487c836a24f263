// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A pod that is replaced by another of the same name, and the operator does not see it.

package faults

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/test/builders"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// TestAPodIsReplacedUnseen: a stuck pod on a hung node is deleted, and another of its name begins its work, while the operator's watches
// are silent. A port-forward names no UID, so nothing but a look at the pod itself keeps the next attempt from the new one's proxy.
func TestAPodIsReplacedUnseen(t *testing.T) {
	t.Parallel()
	nodes, err := simnode.Start(t.Context(), shared.cluster.Config(), simnode.Options{NamePrefix: "replaced"})
	if err != nil {
		t.Fatal(err)
	}
	own := *shared
	own.fleet = nodes
	w := &work{stage: &own, namespace: own.makeNamespace(t), node: nodes.Node(0).Name()}
	w.enforce(t)
	g := &gateway{}
	p := own.startOperator(t, g.connect(t, &own), "--namespaces="+w.namespace)
	p.waitReady(t)
	idle := w.warmUp(t, p)

	owner := w.unmanagedJob(t)
	const names = 10
	makePods := func(run time.Duration) {
		t.Helper()
		for n := range names {
			if err := own.admin.Create(t.Context(), w.podOf(owner, fmt.Sprintf("pod-%d", n), run)); err != nil {
				t.Fatal(err)
			}
		}
	}
	nodes.Node(0).SetFault(simnode.FaultHangBeforeUpgrade)
	makePods(500 * time.Millisecond)
	eventually(t, soon, "every pod to be stuck", func() error {
		n, err := p.metric(t.Context(), "jobmesh_stuck_pods", `namespace="`+w.namespace+`"`)
		if err == nil && n != names {
			err = fmt.Errorf("%v of %d", n, names)
		}
		return err
	})

	released, release := context.WithCancel(t.Context())
	defer release()
	g.begin(func(out http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isWatch(r) {
			select {
			case <-released.Done():
			case <-r.Context().Done():
				return
			}
		}
		pass.ServeHTTP(out, r)
	})(t)
	g.cutWatches()
	began := time.Now()
	if err := own.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0),
		client.MatchingLabels{"replaced": "yes"}); err != nil {
		t.Fatal(err)
	}
	makePods(25 * time.Second)
	nodes.Node(0).SetFault(simnode.FaultNone)
	// Every pod's back-off ends in this time, and no app of the new pods.
	time.Sleep(time.Until(began.Add(18 * time.Second)))
	if n := nodes.Counters().QuitsPremature; n != 0 {
		t.Errorf("%d of the new pods were asked to quit while their app ran", n)
	}
	release()
	g.end(t)
	w.pods += names
	w.awaitAppsEnded(t)
	off := time.Now()
	w.awaitReaped(t, reapBound)
	w.finish(t, p, idle, row{
		Fault: "pods replaced unseen", Effect: "while watches are silent, stuck pods are deleted and others of the same names begin", Test: t.Name(),
		Pods: w.pods - warmUpPods, Held: off.Sub(began), LastReap: time.Since(off),
	})
}

// unmanagedJob makes a Job that Kubernetes' own controller leaves alone, so that its pods can have names of our choice.
func (w *work) unmanagedJob(t *testing.T) *batchv1.Job {
	t.Helper()
	owner := builders.MakeJob("unmanaged", builders.MakePod("template").Namespace(w.namespace).App("app", nil).Obj())
	owner.Spec.ManagedBy = new("jobmesh.dev/nobody")
	if err := w.admin.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	return owner
}

// podOf makes a meshed pod of that Job.
func (w *work) podOf(owner *batchv1.Job, name string, run time.Duration) *corev1.Pod {
	pod := builders.MakePod(name).Namespace(w.namespace).App("app", nil).Proxy(nil).Label("replaced", "yes").Obj()
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: name, Namespace: w.namespace, Labels: pod.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}
	pod.Spec.NodeName = w.node
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = "image"
	}
	simnode.Script{Containers: map[string]simnode.ContainerScript{"app": {Run: metav1.Duration{Duration: run}}}}.Annotate(pod)
	return pod
}
