// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The work: Jobs whose apps finish while something is broken, and what has become of them.

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/test/builders"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// work is the Jobs of one namespace.
type work struct {
	*stage
	namespace string
	node      string // where the pods run; "" leaves it to the scheduler
	pods      int    // that the Jobs are to have
}

// job is a Job with a classic proxy in each of its pods.
type job struct {
	name string
	pods int32
	// run is how long each attempt of the app takes.
	run time.Duration
	// exitCodes are those of the attempts. Where there are any, the Job's restartPolicy is OnFailure.
	exitCodes []int32
}

func (w *work) create(t *testing.T, jobs ...job) {
	t.Helper()
	for _, j := range jobs {
		pod := builders.MakePod("template").Namespace(w.namespace).App("app", nil).Proxy(nil)
		if len(j.exitCodes) > 0 {
			pod.RestartPolicy(corev1.RestartPolicyOnFailure)
		}
		template := pod.Obj()
		simnode.Script{Containers: map[string]simnode.ContainerScript{
			"app": {Run: metav1.Duration{Duration: j.run}, ExitCodes: j.exitCodes},
		}}.Annotate(template)
		object := builders.MakeJob(j.name, template)
		object.Spec.BackoffLimit = new(int32(1000)) // the restarts of all its pods count
		object.Spec.Template.Spec.NodeName = w.node
		object.Spec.Parallelism, object.Spec.Completions = &j.pods, &j.pods
		if err := w.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.pods += int(j.pods)
	}
}

// progress is what the API server says of the Jobs' pods.
type progress struct {
	proxyRuns int // pods whose proxy has started
	appEnded  int // pods whose app has finished for good
	succeeded int // pods that are Succeeded
	other     int // pods that should not be
}

func (w *work) progress(ctx context.Context) (p progress, err error) {
	var pods corev1.PodList
	if err := w.admin.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return p, err
	}
	p.other = max(0, len(pods.Items)-w.pods)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil {
			p.other++
		}
		if pod.Status.Phase == corev1.PodSucceeded {
			p.succeeded++
		}
		for _, c := range pod.Status.ContainerStatuses {
			switch {
			case c.Name == "istio-proxy" && (c.State.Running != nil || c.State.Terminated != nil):
				p.proxyRuns++
			case c.Name == "app" && c.State.Terminated != nil &&
				(c.State.Terminated.ExitCode == 0 || pod.Spec.RestartPolicy == corev1.RestartPolicyNever):
				p.appEnded++
			}
		}
	}
	return p, nil
}

// await waits until so many of the pods as count says are all of them.
func (w *work) await(t *testing.T, bound time.Duration, what string, count func(progress) int) {
	t.Helper()
	eventually(t, bound, what, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		p, err := w.progress(ctx)
		if err != nil {
			return err
		}
		if p.other > 0 {
			t.Fatalf("A pod failed, was deleted, or is one too many: %+v", p)
		}
		if n := count(p); n != w.pods {
			return fmt.Errorf("%d of %d pods", n, w.pods)
		}
		return nil
	})
}

func (w *work) awaitStarted(t *testing.T) {
	t.Helper()
	w.await(t, soon, "every proxy to run", func(p progress) int { return p.proxyRuns })
}

func (w *work) awaitAppsEnded(t *testing.T) {
	t.Helper()
	w.await(t, 2*soon, "every app to finish", func(p progress) int { return p.appEnded })
}

// awaitReaped waits until every pod has succeeded, which none does before its proxy exits.
func (w *work) awaitReaped(t *testing.T, bound time.Duration) {
	t.Helper()
	w.await(t, bound, "every pod to be reaped", func(p progress) int { return p.succeeded })
}

// awaitComplete waits until every Job is Complete with each of its pods.
func (w *work) awaitComplete(t *testing.T) {
	t.Helper()
	eventually(t, soon, "every Job to complete", func() error {
		var jobs batchv1.JobList
		if err := w.admin.List(t.Context(), &jobs, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		succeeded := 0
		for i := range jobs.Items {
			status := jobs.Items[i].Status
			if status.Failed > 0 {
				t.Fatalf("Job %s has lost %d pods", jobs.Items[i].Name, status.Failed)
			}
			if status.CompletionTime == nil {
				return fmt.Errorf("%s goes on", jobs.Items[i].Name)
			}
			succeeded += int(status.Succeeded)
		}
		if succeeded != w.pods {
			return fmt.Errorf("%d of %d pods succeeded", succeeded, w.pods)
		}
		return nil
	})
}

// quits returns what the nodes saw of quits: how many in all, how many too early, and the most that one pod got.
func (w *work) quits(t *testing.T) (all, premature, most int) {
	t.Helper()
	var pods corev1.PodList
	eventually(t, soon, "the list of pods", func() error {
		return w.admin.List(t.Context(), &pods, client.InNamespace(w.namespace))
	})
	for i := range pods.Items {
		seen, _ := w.fleet.Pod(w.namespace, pods.Items[i].Name)
		all += seen.Quits
		premature += seen.QuitsPremature
		most = max(most, seen.Quits)
	}
	return all, premature, most
}

// noneOpen returns an error while a port-forward or a connection to a proxy is open at a node.
func (w *work) noneOpen() error {
	if c := w.fleet.Counters(); c.OpenPortForwards+c.OpenDials > 0 {
		return fmt.Errorf("%d port-forwards and %d connections to proxies are open", c.OpenPortForwards, c.OpenDials)
	}
	return nil
}
