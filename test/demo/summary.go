// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the end of the story: what became of each Job, and whether that is what had to.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

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

// after is the time from the app's end to another thing, as the summary shows it.
func (v *view) after(k kind) string {
	from, finished := v.first[appFinished]
	at, happened := v.first[k]
	if !finished || !happened {
		return "-"
	}
	return fmt.Sprintf("%.2f", at.Sub(from).Seconds())
}
