// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the Jobs of the demo, and what must become of each.

package main

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/internal/verdict"
	"github.com/jobmesh/jobmesh/test/builders"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// The namespaces: one gets a policy, the other does not.
const (
	governed   = "shop"
	ungoverned = "billing"
)

// part is one Job and what must become of it.
type part struct {
	namespace, name, about string
	pod                    *builders.Pod
	exitCodes              []int32 // of the app, run by run

	wantReasons  []verdict.Reason         // explain must have given one of them; the first that it gave is shown
	wantEnd      batchv1.JobConditionType // "": it must not end
	wantAsked    bool                     // whether the proxy must have been asked to quit, or must not
	wantRestarts int32                    // of the app
}

var (
	nightly = &part{namespace: governed, name: "nightly-report", about: "stuck before the policy came",
		pod: meshed(), wantReasons: []verdict.Reason{verdict.DryRun}, wantEnd: batchv1.JobComplete, wantAsked: true}
	invoices = &part{namespace: ungoverned, name: "invoices", about: "no policy in its namespace",
		pod: meshed(), wantReasons: []verdict.Reason{verdict.DryRun}}
	hourly = &part{namespace: governed, name: "hourly-sync", about: "started under the policy",
		pod: meshed(), wantReasons: []verdict.Reason{verdict.Stuck}, wantEnd: batchv1.JobComplete, wantAsked: true}
	retrying = &part{namespace: governed, name: "flaky-import", about: "OnFailure, fails twice",
		pod: meshed().RestartPolicy(corev1.RestartPolicyOnFailure), exitCodes: []int32{1, 1, 0},
		wantReasons: []verdict.Reason{verdict.AppWillRestart, verdict.AppWaiting}, wantEnd: batchv1.JobComplete, wantAsked: true, wantRestarts: 2}
	native = &part{namespace: governed, name: "thumbnails", about: "native sidecar",
		pod:         builders.MakePod("template").NativeProxy().App("app", nil),
		wantReasons: []verdict.Reason{verdict.NativeSidecar}, wantEnd: batchv1.JobComplete}
)

// meshed is a pod as the injector leaves it: the app, and istio-proxy beside it.
func meshed() *builders.Pod { return builders.MakePod("template").App("app", nil).Proxy(nil) }

func (p *part) key() string { return p.namespace + "/" + p.name }

// object is the Job, whose app runs for two seconds.
func (p *part) object() *batchv1.Job {
	template := p.pod.Obj()
	simnode.Script{Containers: map[string]simnode.ContainerScript{
		"app": {Run: metav1.Duration{Duration: 2 * time.Second}, ExitCodes: p.exitCodes},
	}}.Annotate(template)
	job := builders.MakeJob(p.name, template)
	job.Namespace = p.namespace
	return job
}

// check compares what became of the Job with what must.
func (p *part) check(v *view, node simnode.PodState) error {
	switch {
	case v.pod == nil:
		return fmt.Errorf("%s has no pod", p.key())
	case v.end != p.wantEnd:
		return fmt.Errorf("%s ended %q, not %q", p.key(), v.end, p.wantEnd)
	case p.line(v) == "":
		return fmt.Errorf("explain did not say %v of %s", p.wantReasons, p.key())
	case p.wantAsked != (node.Quits > 0):
		return fmt.Errorf("the proxy of %s was asked to quit %d times", p.key(), node.Quits)
	case node.QuitsPremature > 0:
		return fmt.Errorf("the proxy of %s was asked to quit while the app still had to run", p.key())
	case v.restarts != p.wantRestarts:
		return fmt.Errorf("the app of %s was restarted %d times, not %d", p.key(), v.restarts, p.wantRestarts)
	}
	if proxy := proxyStatus(v.pod); proxy == nil || proxy.RestartCount != 0 {
		return fmt.Errorf("the proxy of %s was restarted", p.key())
	}
	return nil
}

// line is what explain said of the pod.
func (p *part) line(v *view) string {
	for _, reason := range p.wantReasons {
		if line := v.explained[reason]; line != "" {
			return line
		}
	}
	return ""
}
