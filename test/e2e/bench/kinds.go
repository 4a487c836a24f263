// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the kinds of Jobs that are compared, and their namespaces.

package main

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/e2e/deploy"
	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

// The kinds' keys.
const (
	none     = "none"
	shell    = "shell"
	jobMesh  = "jobmesh"
	native   = "native"
	draining = "draining"
	loop     = "loop"
)

// kind is one way to run a Job in a mesh.
type kind struct {
	key, title, detail, color string
	make                      func(script string) *batchv1.Job
	// mode is the policy's in its namespace, "" for none: the operator has to leave alone what others are to end.
	mode v1alpha1.Mode
	// burst says that it takes part in the burst too.
	burst bool
}

// work is what every app does.
const work = "sleep 2"

// asksItself is the workaround in the app's own command: when the work is done it asks the proxy to quit, as often as needed where the
// agent is not up yet, and keeps the work's exit code. It is bounded: the agent may be gone before its answer is. It asks with nc
// because the wget of some busybox crashes on --post-data.
const asksItself = `%s; code=$?; i=0
while [ $i -lt 300 ]; do
  case "$(printf 'POST /quitquitquit HTTP/1.0\r\n\r\n' | busybox nc -w 5 127.0.0.1 15020)" in *" 200 "*) break ;; esac
  i=$((i+1)); sleep 0.1
done
exit $code`

var kinds = []kind{
	{key: none, title: "No sidecar", detail: "outside the mesh", color: "#8b949e", burst: true,
		make: func(script string) *batchv1.Job { return workload.Job(script) }},
	{key: shell, title: "Shell workaround", detail: "the app asks the proxy itself", color: "#bf8700", mode: v1alpha1.ModeDisabled, burst: true,
		make: func(script string) *batchv1.Job {
			return workload.Meshed(workload.Job(fmt.Sprintf(asksItself, script)))
		}},
	{key: jobMesh, title: "JobMesh", detail: "classic sidecar, Job unchanged", color: "#0969da", mode: v1alpha1.ModeEnforce, burst: true,
		make: func(script string) *batchv1.Job { return workload.Meshed(workload.Job(script)) }},
	{key: native, title: "Native sidecar", detail: "as Istio injects it today", color: "#1a7f37", burst: true,
		make: func(script string) *batchv1.Job { return workload.MeshedNatively(workload.Job(script)) }},
	{key: draining, title: "Native sidecar, draining", detail: "without Istio's preStop hook", color: "#8250df", burst: true,
		make: func(script string) *batchv1.Job { return withoutHook(workload.MeshedNatively(workload.Job(script))) }},
	{key: loop, title: "Home-made reaper", detail: "a port-forward loop in shell", color: "#cf222e", mode: v1alpha1.ModeDisabled,
		make: func(script string) *batchv1.Job { return workload.Meshed(workload.Job(script)) }},
}

// withoutHook takes the injector's preStop hook away, as a lifecycle of one's own in the mesh's values does (global.proxy.lifecycle).
// The hook tells the agent to drain early; an agent that was told so exits at once on SIGTERM, and one that was not drains then.
func withoutHook(j *batchv1.Job) *batchv1.Job {
	for i := range j.Spec.Template.Spec.InitContainers {
		j.Spec.Template.Spec.InitContainers[i].Lifecycle = nil
	}
	return j
}

// label marks everything that the bench creates, and nothing else.
const label = "bench.jobmesh.dev/kind"

// job makes a Job of a kind. Pods have the default time to terminate: the cases' 5 s would cut a native sidecar's drain short.
func (k kind) job(namespace, name string, pods int32) *batchv1.Job {
	j := k.make(work)
	j.Namespace, j.Name = namespace, name
	j.Labels = map[string]string{label: k.key}
	j.Spec.Parallelism, j.Spec.Completions = &pods, &pods
	j.Spec.Template.Labels = j.Labels
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	return j
}

// prepare makes the kind's namespace and returns its name.
func (k kind) prepare(ctx context.Context, kube client.Client) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-" + k.key + "-", Labels: map[string]string{label: k.key}}}
	if err := kube.Create(ctx, ns); err != nil {
		return "", err
	}
	kubernetes := &corev1.ConfigMap{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: deploy.Namespace, Name: "kube-root-ca.crt"}, kubernetes); err != nil {
		return "", err
	}
	objects := []client.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: workload.RootCertificate},
		Data:       map[string]string{"root-cert.pem": kubernetes.Data["ca.crt"]},
	}}
	if k.mode != "" {
		objects = append(objects, &v1alpha1.JobMeshPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "bench"},
			Spec:       v1alpha1.JobMeshPolicySpec{Mode: k.mode},
		})
	}
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(kube.Create(ctx, object)); err != nil {
			return "", err
		}
	}
	return ns.Name, wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}
