// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A tenant's text in a pod reaches no log, no event, no metric, no status and no error of the operator.

package controllers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/quit"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// theirs marks a tenant's text; evil is such a text as a terminal, a log reader or a format string should not meet.
const (
	theirs = "t3nant"
	evil   = "\x1b[31m\x1b]0;" + theirs + "\x07\u009b2J\r\n\t\u202e\u200b\u2028%s%n%!d{{.}}\x00" + theirs
)

// evilly puts evil wherever a pod has room for a text: in what the API server checks too, for the operator trusts none of it. The pod's
// own name and namespace stay, which every log line and event must name.
func evilly(pod *corev1.Pod) {
	pod.GenerateName = evil
	pod.Labels = map[string]string{evil: evil, "app": evil}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for _, key := range []string{evil, "jobmesh.dev/mode", "proxy.istio.io/config", "sidecar.istio.io/status"} {
		pod.Annotations[key] = evil
	}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.Hostname = evil, evil, evil
	pod.Status.Message, pod.Status.Reason, pod.Status.PodIP, pod.Status.NominatedNodeName = evil, evil, evil, evil
	for i := range pod.Status.Conditions {
		pod.Status.Conditions[i].Message = evil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Image, c.Env = evil, append(c.Env, corev1.EnvVar{Name: evil, Value: evil}, corev1.EnvVar{Name: "PROXY_CONFIG", Value: evil})
		status := &pod.Status.ContainerStatuses[i]
		status.ContainerID, status.Image, status.ImageID = evil+c.Name, evil, evil
		if end := status.State.Terminated; end != nil {
			end.Message, end.ContainerID, end.Reason = evil, evil, evil
		}
		if c.Name != "istio-proxy" {
			c.Name, status.Name = evil, evil
		}
	}
}

// spoilt says what is wrong with a text of the operator: it holds a tenant's, or what is no character of its own. "" where nothing is.
func spoilt(text string) string {
	if strings.Contains(text, theirs) {
		return "it holds a tenant's text"
	}
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) { // tabs are the text log's own
			return fmt.Sprintf("it holds %q", r)
		}
	}
	return ""
}

func checkUnspoilt(t *testing.T, what, text string) {
	t.Helper()
	if why := spoilt(text); why != "" {
		t.Errorf("%s: %s: %.500q", what, why, text)
	}
}

func TestATenantsTextGoesNowhere(t *testing.T) {
	tests := map[string]struct {
		pod      *build.Pod
		policy   *build.Policy
		outcomes []quit.Outcome
	}{
		"asked and reaped":        {pod: stuck("pod"), outcomes: []quit.Outcome{quit.OutcomeAccepted}},
		"asked in vain":           {pod: stuck("pod"), outcomes: []quit.Outcome{quit.OutcomeUnknown}},
		"rejected":                {pod: stuck("pod"), outcomes: []quit.Outcome{quit.OutcomeRejected}},
		"in error":                {pod: stuck("pod"), outcomes: []quit.Outcome{quit.OutcomeError, quit.OutcomeTimeout, quit.OutcomeForbidden, quit.OutcomeRefused}},
		"no port":                 {pod: stuck("pod").Annotation("status.sidecar.istio.io/port", evil)},
		"on the node's network":   {pod: stuck("pod").HostNetwork()},
		"proxyless":               {pod: build.MakePod("pod").App("app", build.Exited(0)).Proxy(build.Running(), build.Env("DISABLE_ENVOY", "1"))},
		"under DryRun":            {pod: stuck("pod"), policy: build.MakePolicy("reap").Mode(v1alpha1.ModeDryRun)},
		"in its grace period":     {pod: stuck("pod"), policy: build.MakePolicy("reap").Grace(600)},
		"busy":                    {pod: build.MakePod("pod").App("app", build.Running()).Proxy(build.Running())},
		"waiting":                 {pod: build.MakePod("pod").App("app", build.Waiting(evil)).Proxy(build.Running())},
		"of no Job":               {pod: stuck("pod").With(func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = evil })},
		"of a Job with evil name": {pod: stuck("pod").With(func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = evil }), policy: build.MakePolicy("reap").Grace(600)},
		"of a Job with evil UID":  {pod: stuck("pod").With(func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = evil }), policy: build.MakePolicy("reap").Grace(600)},
	}
	for name, tc := range tests {
		for _, format := range []string{"json", "text"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				pod := tc.pod.With(evilly).Obj()
				if tc.policy == nil {
					tc.policy = build.MakePolicy("reap")
				}
				b := newBench(t, tc.policy.Obj())
				b.see(pod, b.cached, b.live)
				if tc.outcomes != nil {
					b.quitter.outcomes = slices.Clone(tc.outcomes)
				}
				var log bytes.Buffer
				ctx := ctrl.LoggerInto(t.Context(), zap.New(zap.WriteTo(&log), zap.Level(zapcore.Level(-9)), zap.UseDevMode(format == "text"),
					zap.StacktraceLevel(zapcore.PanicLevel)))
				reconcile := func() {
					if _, err := b.Reconcile(ctx, requestFor("pod")); err != nil {
						checkUnspoilt(t, "an error", err.Error())
					}
				}
				for range 25 { // as far as the events that tell of failures
					reconcile()
					b.clock.Step(2 * time.Minute)
				}
				// The API server's own errors name what was asked for.
				for _, err := range []error{
					apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod", errors.New("no")), apierrors.NewTimeoutError("no", 1), errServer,
				} {
					b.liveErr = err
					reconcile()
					b.clock.Step(2 * time.Minute)
				}
				b.liveErr = nil
				b.see(endedPod("pod", corev1.PodSucceeded).With(func(p *corev1.Pod) { p.OwnerReferences = pod.OwnerReferences }).With(evilly).Obj(), b.cached, b.live)
				reconcile()

				checkUnspoilt(t, "the log", log.String())
				if format == "json" {
					for line := range strings.Lines(log.String()) {
						if !json.Valid([]byte(line)) {
							t.Errorf("a line of the log is no JSON: %q", line)
						}
					}
				}
				for _, event := range b.heard() {
					checkUnspoilt(t, "an event", event)
					if len(event) > 1024 {
						t.Errorf("an event of %d bytes", len(event))
					}
				}
				families, err := b.registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, family := range families {
					for _, m := range family.GetMetric() {
						for _, l := range m.GetLabel() {
							checkUnspoilt(t, "a label of "+family.GetName(), l.GetValue())
						}
					}
				}
			})
		}
	}
}

// TestTheLogIsNotEmpty keeps the test above honest.
func TestTheLogIsNotEmpty(t *testing.T) {
	b := enforcing(t, stuck("pod").Obj())
	var log bytes.Buffer
	ctx := ctrl.LoggerInto(t.Context(), zap.New(zap.WriteTo(&log), zap.Level(zapcore.Level(-9))))
	if _, err := b.Reconcile(ctx, requestFor("pod")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "Asked the proxy to quit") {
		t.Errorf("the log says %q", log.String())
	}
	checkUnspoilt(t, "the log", log.String())
	if spoilt(evil) == "" || spoilt("\u202e") == "" || spoilt(theirs) == "" {
		t.Error("the check finds nothing")
	}
}
