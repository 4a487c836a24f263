// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the story, act by act.

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

const (
	policyName = "enforce"
	// reapedPods is how many pods of the cast must be reaped.
	reapedPods = 3
)

const policyYAML = `apiVersion: jobmesh.dev/v1alpha1
kind: JobMeshPolicy
metadata:
  name: ` + policyName + `
  namespace: ` + governed + `
spec:
  mode: Enforce
`

// telling is a story under way.
type telling struct {
	*screen
	*rig
	known *chronicle
	shown int // facts that were shown, or passed over
}

// tell tells the whole story. What it starts it leaves to rig.stop.
func tell(ctx context.Context, s *screen, r *rig) error {
	s.linef("%s", s.paint("1", "JobMesh: Jobs in an Istio mesh finish when their work does."))
	s.linef("Nothing here needs Docker or root, and nothing is left behind. Ctrl-C ends it at any time.")
	s.heading("Getting ready")
	t := &telling{screen: s, rig: r, known: newChronicle()}
	if err := r.start(ctx, s, t.known.hear); err != nil {
		return err
	}
	if err := t.known.watch(ctx, r.cluster.Config()); err != nil {
		return err
	}
	for _, act := range []func(context.Context) error{t.stuckJob, t.policy, t.everyKind, t.summary} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *telling) stuckJob(ctx context.Context) error {
	t.heading("1. A Job that is done and does not end")
	for _, p := range []*part{nightly, invoices} {
		if err := t.makeNamespace(ctx, p.namespace); err != nil {
			return err
		}
		if err := t.admin.Create(ctx, p.object()); err != nil {
			return err
		}
	}
	t.linef("Two Jobs start, in the namespaces %s and %s. The app in each runs for 2 s; istio-proxy runs beside it.", governed, ungoverned)
	t.linef("The seconds tell when a fact became known, the brackets from where.\n")
	began := time.Now()
	if err := t.follow(ctx, began, []*part{nightly, invoices}, appFinished); err != nil {
		return err
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	t.linef("\nThe work is done, but istio-proxy runs on, so for Kubernetes nothing has ended, and never will:\n")
	if err := t.show(ctx, governed, "jobs", "pods"); err != nil {
		return err
	}
	t.linef("\nThe operator sees it. Without a policy it reports stuck pods and touches nothing. One line of `explain`:\n")
	return t.explain(ctx, nightly, verdict.DryRun)
}

func (t *telling) policy(ctx context.Context) error {
	t.heading("2. A policy, and the stuck Job ends")
	t.command("kubectl apply -f policy.yaml")
	t.block(policyYAML)
	t.linef("")
	policy := &v1alpha1.JobMeshPolicy{}
	if err := yaml.UnmarshalStrict([]byte(policyYAML), policy); err != nil {
		return err
	}
	applied := time.Now()
	if err := t.admin.Create(ctx, policy); err != nil {
		return err
	}
	t.known.govern([]v1alpha1.JobMeshPolicy{*policy})
	if finished, ok := t.known.when(nightly.key(), appFinished); ok {
		t.line(applied, fact{at: finished, job: nightly.key(), text: "app finished (as above)", source: "pod's status"})
	}
	t.line(applied, fact{at: applied, job: nightly.key(), text: "policy applied"})
	if err := t.follow(ctx, applied, []*part{nightly}, jobEnded); err != nil {
		return err
	}
	t.linef("")
	return t.show(ctx, governed, "jobs", "pods")
}

func (t *telling) everyKind(ctx context.Context) error {
	t.heading("3. Every kind of Job, with the policy in place")
	began := time.Now()
	started := []*part{hourly, retrying, native}
	for _, p := range started {
		if err := t.admin.Create(ctx, p.object()); err != nil {
			return err
		}
		t.linef("  %-16s %s", p.name, p.about)
	}
	t.linef("")
	return t.follow(ctx, began, started, jobEnded)
}

// follow shows what happens to some Jobs, until the last thing has happened to each of them.
func (t *telling) follow(ctx context.Context, zero time.Time, parts []*part, last kind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not go on within %s", patience))
	defer cancel()
	for {
		done := true
		for _, p := range parts {
			_, happened := t.known.when(p.key(), last)
			done = done && happened
		}
		for _, f := range t.known.since(t.shown) {
			t.shown++
			for _, p := range parts {
				if p.key() == f.job {
					t.line(zero, f)
				}
			}
		}
		if done {
			return nil
		}
		select {
		case <-t.known.news:
		case <-t.operator.exited:
			return fmt.Errorf("the operator ended: %w", t.operator.err)
		case <-t.cluster.Done():
			return errors.Join(context.Cause(ctx), errors.New("the control plane ended"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// line shows one fact.
func (t *telling) line(zero time.Time, f fact) {
	source := ""
	if f.source != "" {
		source = t.faint(" [" + f.source + "]")
	}
	text := f.text
	switch f.kind {
	case appRestarted:
		text = t.paint("33", text)
	case quitAsked:
		text = t.paint("36", text)
	case jobEnded:
		text = t.good(text)
	}
	t.linef("  %+8.2f s  %-20s  %s%s", f.at.Sub(zero).Seconds(), f.job, text, source)
}

// groups are where the API server serves the resources that are shown.
var groups = map[string]string{"pods": "/api/v1", "jobs": "/apis/batch/v1", "jobmeshpolicies": "/apis/jobmesh.dev/v1alpha1"}

// show prints what kubectl prints, which is the API server's own table.
func (t *telling) show(ctx context.Context, namespace string, resources ...string) error {
	for i, resource := range resources {
		if i > 0 {
			t.linef("")
		}
		t.command("kubectl get " + resource + " -n " + namespace)
		text, err := t.tables.Get().AbsPath(groups[resource], "namespaces", namespace, resource).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
		if err != nil {
			return fmt.Errorf("getting %s: %w", resource, err)
		}
		table := &metav1.Table{}
		if err := yaml.Unmarshal(text, table); err != nil {
			return err
		}
		if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, t); err != nil {
			return err
		}
	}
	return nil
}

// explain shows explain's line about the pod of a Job.
func (t *telling) explain(ctx context.Context, p *part, reason verdict.Reason) error {
	return eventually(ctx, "explain", func() (err error) {
		t.known.read(p.key(), func(v *view) {
			if v.explained[reason] == "" {
				err = fmt.Errorf("it did not say %s of %s", reason, p.key())
				return
			}
			t.command("kubectl jobmesh explain pod/" + v.pod.Name + " -n " + p.namespace)
			t.linef("%s", v.explained[reason])
		})
		return err
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
