// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a person runs the plugin on may have been written by somebody who wishes them harm. Whatever it holds, the terminal gets text.

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/test/builders"
)

// nasty is what a terminal must never be sent: colour, title, clipboard, a cleared screen, one-byte CSI, line breaks, reordering marks,
// invisible characters, a tag, a line separator, a broken character, NUL and DEL.
const nasty = "\x1b[31m\x1b]0;owned\x07\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\u009b5m\r\n\t\v\f\b\u202e\u2066\u200b\ufeff\U000e0041\u2028\x00\x7f"

// nastyPod has it wherever a pod has text of its own.
func nastyPod() *corev1.Pod {
	pod := builders.MakePod("pod"+nasty).Namespace("ns"+nasty).Annotation("jobmesh.dev/mode", nasty).Annotation("proxy.istio.io/config", nasty).
		Label("app", nasty).Label(nasty, nasty).
		Init("init"+nasty, builders.Exited(0)).App("app"+nasty, builders.ExitedFor(1, nasty)).App(nasty, builders.Waiting(nasty)).
		Proxy(builders.Running(), builders.Env("PROXY_CONFIG", nasty), builders.Args("proxy", nasty)).Obj()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.OwnerReferences[0].Name = "job" + nasty
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: nasty}}}
	pod.Spec.NodeName, pod.Status.Message, pod.Status.Reason = nasty, nasty, nasty
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil {
			end.Message = nasty
		}
	}
	return pod
}

// checkClean fails where a text holds what is no character of its own.
func checkClean(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%s holds %q: %.300q", what, r, text)
			return
		}
	}
}

func asJSON(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNastyText(t *testing.T) {
	pod := asJSON(t, nastyPod())
	stuck := builders.MakePod("stuck").App("app"+nasty, builders.Exited(0)).Proxy(builders.Running()).Obj()
	stuck.TypeMeta = nastyPod().TypeMeta
	policy := func(spec string) string {
		return `{"apiVersion":"jobmesh.dev/v1alpha1","kind":"JobMeshPolicy","metadata":{"name":"p"},"spec":` + spec + `}`
	}
	quoted := asJSON(t, nasty)
	for name, tc := range map[string]struct {
		in         string
		wantStatus int
	}{
		"a pod":                   {pod, 0},
		"a stuck pod":             {asJSON(t, stuck), 0},
		"a List":                  {`{"apiVersion":"v1","kind":"List","items":[` + pod + "," + pod + `]}`, 0},
		"others":                  {pod + `{"apiVersion":"x/v1","kind":` + quoted + `}`, 0},
		"an ignored container":    {asJSON(t, stuck) + policy(`{"ignoredContainers":["x"]}`), 0},
		"an apiVersion":           {`{"apiVersion":` + quoted + `,"kind":"Pod","metadata":{"name":` + quoted + `}}`, exitInput},
		"a kind":                  {`{"apiVersion":"v1","kind":` + quoted + `}`, exitInput},
		"a Pod that is none":      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":` + quoted + `},"spec":{"containers":` + quoted + `}}`, exitInput},
		"a policy's mode":         {policy(`{"mode":` + quoted + `}`), exitInput},
		"a policy's field":        {policy(`{` + quoted + `:1}`), exitInput},
		"a policy's label":        {policy(`{"podSelector":{"matchLabels":{` + quoted + `:` + quoted + `}}}`), exitInput},
		"a policy's expression":   {policy(`{"podSelector":{"matchExpressions":[{"key":` + quoted + `,"operator":` + quoted + `,"values":[` + quoted + `]}]}}`), exitInput},
		"a policy's container":    {policy(`{"ignoredContainers":[` + quoted + `]}`), exitInput},
		"a policy's name":         {`{"apiVersion":"jobmesh.dev/v1alpha1","kind":"JobMeshPolicy","metadata":{"name":` + quoted + `}}`, exitInput},
		"text that is no JSON":    {"{" + strings.ReplaceAll(nasty, "\x00", ""), exitInput},
		"text that is no YAML":    {"a: \"" + strings.ReplaceAll(nasty, "\x00", ""), exitInput},
		"YAML with a bad anchor":  {"a: *" + strings.Repeat("\u202e", 10), exitInput},
		"a very long error":       {`{"apiVersion":` + asJSON(t, strings.Repeat(nasty, 10_000)) + `,"kind":"Pod"}`, exitInput},
		"a pod of no Job's owner": {strings.ReplaceAll(pod, `"kind":"Job"`, `"kind":`+quoted), 0},
	} {
		for _, output := range outputs {
			t.Run(name+"/"+output, func(t *testing.T) {
				status, out, errOut := kubectl(t, tc.in, "explain", "-f", "-", "-o", output)
				checkClean(t, "the output", out)
				checkClean(t, "the errors", errOut)
				if status != tc.wantStatus {
					t.Errorf("status %d, %.500s", status, errOut)
				}
				if len(errOut) > 16<<10 {
					t.Errorf("%d bytes of errors", len(errOut))
				}
				if status == 0 && output == "json" && !json.Valid([]byte(out)) {
					t.Errorf("no JSON: %s", out)
				}
			})
		}
	}
}

// Names on the command line come from scripts, too.
func TestNastyArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, args := range map[string][]string{
		"a pod":               {"explain", "pod/" + nasty},
		"a bare name":         {"explain", nasty},
		"a file":              {"explain", "-f", nasty},
		"a policy file":       {"explain", "pod/a", "--policy", nasty},
		"a namespace":         {"explain", "pod/a", "-n", nasty},
		"a namespace path":    {"explain", "pod/a", "-n", "A_B/../.."},
		"a path offline":      {"explain", "-f", "testdata/stuck.yaml", "-n", "../kube-system"},
		"a namespace of dots": {"explain", "pod/a", "-n", ".."},
		"an output":           {"explain", "pod/a", "-o", nasty},
		"a mode":              {"explain", "pod/a", "--default-mode", nasty},
		"a flag":              {"explain", "--" + nasty},
		"a command":           {nasty},
		"a context":           {"explain", "pod/a", "--context", nasty},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := kubectl(t, "", args...)
			checkClean(t, "the output", out)
			checkClean(t, "the errors", errOut)
			if status != exitInput || !strings.HasPrefix(errOut, "error: ") {
				t.Errorf("status %d, %q", status, errOut)
			}
		})
	}
}

// TestAThousandContainersExplained shows each of them, in a moment.
func TestAThousandContainersExplained(t *testing.T) {
	pod := builders.MakePod("p")
	for n := range 1000 {
		pod.App(fmt.Sprintf("app-%04d", n), builders.Exited(0))
	}
	object := pod.Proxy(builders.Running()).Obj()
	object.APIVersion, object.Kind = "v1", "Pod"
	began := time.Now()
	status, out, errOut := kubectl(t, asJSON(t, object), "explain", "-f", "-")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if want := "default/p: Observe (DryRun)"; status != 0 || !strings.HasPrefix(out, want) || strings.Count(out, "\n") < 1000 {
		t.Errorf("status %d, %d lines, %s", status, strings.Count(out, "\n"), errOut)
	}
}

// FuzzExplain has the plugin explain whatever there is to read.
func FuzzExplain(f *testing.F) {
	pod, err := json.Marshal(nastyPod())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(pod), "", "{}", "a: [", "\x1b", "\xff\xfea\x00", "kind: Pod\napiVersion: v1\nmetadata: {name: \"\\e[31m\\u202e\"}\n---\n" + string(pod),
		"{apiVersion: v1, kind: Pod, metadata: {name: a, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: \"\\a\", controller: true}]}, spec: {containers: [{name: istio-proxy}, {name: \"\\u009b\"}]}}",
		"{apiVersion: v1, kind: Pod, spec: {containers: [{name: a}, {name: a}, {}]}, status: {containerStatuses: [{name: a, state: {running: {}, terminated: {exitCode: 1}}}]}}",
		"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: p}, spec: {mode: \"\\e\"}}",
		"{apiVersion: \"\\u2028\", kind: \"\\e\"}", "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}, null]}",
	} {
		for output := range uint8(3) {
			f.Add([]byte(seed), output)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, output uint8) {
		format := outputs[int(output)%len(outputs)]
		status, out, errOut := kubectl(t, string(data), "explain", "-f", "-", "-o", format)
		checkClean(t, "the output", out)
		checkClean(t, "the errors", errOut)
		switch status {
		case 0:
			if out == "" || format == "json" && !json.Valid([]byte(out)) {
				t.Errorf("the output is %q", out)
			}
		case exitInput:
			if out != "" || !strings.HasPrefix(errOut, "error: ") {
				t.Errorf("stdout %q, stderr %q", out, errOut)
			}
		default:
			t.Errorf("status %d", status)
		}
		if len(errOut) > 32<<10 {
			t.Errorf("%d bytes of errors", len(errOut))
		}
	})
}
