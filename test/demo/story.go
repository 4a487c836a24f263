// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the story, act by act.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

func (t *telling) summary(ctx context.Context) error {
	t.heading("What became of the Jobs")
	all := []*part{nightly, hourly, retrying, native, invoices}
	table := printers.GetNewTabWriter(t)
	_, _ = fmt.Fprintf(table, "\tSECONDS FROM THE APP'S END TO\nJOB\tQUIT\tPROXY'S EXIT\tJOB'S END\tENDED\tWHAT IT IS\n")
	for _, p := range all {
		t.known.read(p.key(), func(v *view) {
			ended := "Job " + string(v.end)
			if v.end == "" {
				ended = "no: reported, not touched"
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", p.key(), v.after(quitAsked), v.after(proxyExited), v.after(jobEnded), ended, p.about)
		})
	}
	_ = table.Flush()
	t.linef("\nWhat `kubectl jobmesh explain` said of each, while it ran:\n")
	for _, p := range all {
		t.known.read(p.key(), func(v *view) { t.linef("  %s", p.line(v)) })
	}
	t.linef("\nWhat the policy says, and what Prometheus reads at the operator's /metrics:\n")
	if err := t.policyStatus(ctx); err != nil {
		return err
	}
	t.linef("")
	if err := t.metrics(ctx); err != nil {
		return err
	}
	if err := t.check(ctx, all); err != nil {
		return err
	}
	t.linef("\n%s Every Job ended as told: no proxy was asked before its app had finished for good, and none was touched without a policy.",
		t.good("OK."))
	t.linef("\nNext:")
	t.linef("  bin/kubectl-jobmesh explain -f pod.yaml   what the operator would do with a pod of yours; needs no cluster")
	t.linef("  make deploy IMG=<registry>/jobmesh:<tag>  install it on your cluster; it only reports until you write a policy")
	t.linef("  config/samples/                           policies to start from\n")
	return nil
}

// policyStatus shows the policy once its status, which the operator writes at most every 10 s, counts every reaped pod.
func (t *telling) policyStatus(ctx context.Context) error {
	err := eventually(ctx, "the policy's status", func() error {
		var policy v1alpha1.JobMeshPolicy
		if err := t.admin.Get(ctx, client.ObjectKey{Namespace: governed, Name: policyName}, &policy); err != nil {
			return err
		}
		if policy.Status.ReapedPods == nil || *policy.Status.ReapedPods != reapedPods {
			return fmt.Errorf("it does not count %d reaped pods", reapedPods)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.show(ctx, governed, "jobmeshpolicies")
}

// metrics shows what the operator counted, once it is what it must be.
func (t *telling) metrics(ctx context.Context) error {
	want := []string{
		fmt.Sprintf("jobmesh_reaped_pods_total{namespace=%q,policy=%q,result=%q} %d", governed, policyName, "Succeeded", reapedPods),
		fmt.Sprintf("jobmesh_stuck_pods{namespace=%q,policy=%q,reason=%q,verdict=%q} 1", ungoverned, "", verdict.DryRun, verdict.Observe),
	}
	return eventually(ctx, "the operator's metrics", func() error {
		series, err := t.operator.ownMetrics(ctx, "jobmesh_reaped_pods_total", "jobmesh_stuck_pods")
		if err != nil {
			return err
		}
		if !slices.Equal(series, want) {
			return fmt.Errorf("they are %q, not %q", series, want)
		}
		for _, line := range series {
			t.linef("  %s", line)
		}
		return nil
	})
}

// check holds what happened against what had to happen.
func (t *telling) check(ctx context.Context, all []*part) error {
	var wrong []error
	for _, p := range all {
		t.known.read(p.key(), func(v *view) {
			if v.pod == nil {
				wrong = append(wrong, fmt.Errorf("%s has no pod", p.key()))
				return
			}
			node, _ := t.fleet.Pod(p.namespace, v.pod.Name)
			wrong = append(wrong, p.check(v, node))
		})
	}
	var events eventsv1.EventList
	if err := t.admin.List(ctx, &events, client.InNamespace(ungoverned)); err != nil {
		return err
	}
	reported := false
	for _, e := range events.Items {
		reported = reported || e.Reason == string(verdict.DryRun)
	}
	if !reported {
		wrong = append(wrong, errors.New("no event reports the stuck pod in "+ungoverned))
	}
	return errors.Join(wrong...)
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

// after is the time from the app's end to another thing, as the summary shows it.
func (v *view) after(k kind) string {
	from, finished := v.first[appFinished]
	at, happened := v.first[k]
	if !finished || !happened {
		return "-"
	}
	return fmt.Sprintf("%.2f", at.Sub(from).Seconds())
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
