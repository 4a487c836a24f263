// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/test/builders"
)

var dryRun = policy.Defaults{Mode: v1alpha1.ModeDryRun}

func stuck() *corev1.Pod {
	return builders.MakePod("a").App("app", builders.Exited(0)).Proxy(builders.Running()).Obj()
}

func TestExplain(t *testing.T) {
	now := builders.FinishedAt.Add(90*time.Second + 100*time.Millisecond)
	job := &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(200))}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: builders.Start}}}
	everywhere := builders.MakePolicy("everywhere").Namespace("").Obj()
	unreadable := builders.MakePolicy("unreadable").Obj()
	unreadable.Spec.PodSelector = &v1alpha1.PodSelector{MatchExpressions: []v1alpha1.PodSelectorRequirement{{Key: "a", Operator: "Is"}}}

	for name, tc := range map[string]struct {
		pod       *corev1.Pod
		job       *batchv1.Job
		policies  []*v1alpha1.JobMeshPolicy
		defaults  policy.Defaults
		want      string
		wantAfter int64
		wantNotes []string
	}{
		"default mode":                {pod: stuck(), want: `default/a: Observe (DryRun): istio-proxy would be asked to quit, but the mode is DryRun (the operator's default).`},
		"policy":                      {pod: stuck(), policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Obj()}, want: "default/a: Quit (Stuck): Every app container has finished for good, and istio-proxy still runs."},
		"policy of another namespace": {pod: stuck(), policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Namespace("other").Obj()}, want: `default/a: Observe (DryRun): istio-proxy would be asked to quit, but the mode is DryRun (the operator's default).`},
		"policy of no namespace": {
			pod: builders.MakePod("a").Namespace("team").App("app", builders.Running()).Proxy(builders.Running()).Obj(), policies: []*v1alpha1.JobMeshPolicy{everywhere},
			want: `team/a: Wait (AppRunning): App container "app" is running.`,
		},
		"grace period": {
			pod: stuck(), policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Grace(120).Obj()},
			want: "default/a: Wait (GracePeriod): The grace period ends in 29.9s.", wantAfter: 30,
			wantNotes: []string{`The Job "a-job" was not read: its activeDeadlineSeconds, if any, do not cut the grace period here.`},
		},
		"grace period cut by the Job's deadline": {
			pod: stuck(), job: job, policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Grace(120).Obj()},
			want: "default/a: Wait (GracePeriod): The grace period ends in 19.9s.", wantAfter: 20,
		},
		"outranked and unreadable policies": {
			pod: stuck(), policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("low").Priority(-1).Obj(), unreadable, builders.MakePolicy("high").Mode(v1alpha1.ModeDryRun).Obj()},
			want:      `default/a: Observe (DryRun): istio-proxy would be asked to quit, but the mode is DryRun (policy "high").`,
			wantNotes: []string{`The policy "low" selects the pod too, and ranks lower.`, `The policy "unreadable" governs nothing, because its podSelector cannot be read.`},
		},
		"exec fallback not allowed": {
			pod:       builders.MakePod("a").Annotation("status.sidecar.istio.io/port", "0").App("app", builders.Exited(0)).Proxy(builders.Running()).Obj(),
			policies:  []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Quit(10, v1alpha1.QuitFallbackExec).Obj()},
			want:      "default/a: Blocked (StatusPortDisabled): The pod disables the proxy's status port, and there is no exec fallback.",
			wantNotes: []string{"The policy asks for the exec fallback, which counts only where the operator runs with --allow-exec-fallback."},
		},
		"exec fallback allowed": {
			pod:      builders.MakePod("a").Annotation("status.sidecar.istio.io/port", "0").App("app", builders.Exited(0)).Proxy(builders.Running()).Obj(),
			policies: []*v1alpha1.JobMeshPolicy{builders.MakePolicy("p").Quit(10, v1alpha1.QuitFallbackExec).Obj()},
			defaults: policy.Defaults{Mode: v1alpha1.ModeDryRun, AllowExecFallback: true},
			want:     "default/a: Quit (Stuck): Every app container has finished for good, and istio-proxy still runs.",
		},
		"a pod not named yet": {pod: builders.MakePod("").With(func(p *corev1.Pod) { p.GenerateName, p.OwnerReferences[0].Name = "seed-", "seed" }).Obj(), want: "default/seed-: Ignore (NoProxy): The pod has no istio-proxy container."},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.defaults.Mode == "" {
				tc.defaults = dryRun
			}
			var policies []v1alpha1.JobMeshPolicy
			for _, p := range tc.policies {
				policies = append(policies, *p)
			}
			e := NewRules(tc.defaults, policies).Explain(tc.pod, tc.job, now)
			if got := e.Line(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if e.RecheckAfterSeconds != tc.wantAfter {
				t.Errorf("recheck after %d s, want %d", e.RecheckAfterSeconds, tc.wantAfter)
			}
			if diff := cmp.Diff(append([]string{}, tc.wantNotes...), e.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// Scripts rely on every key being there, and none being null.
func TestJSONOfAnEmptyPod(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, []Explanation{NewRules(dryRun, nil).Explain(&corev1.Pod{}, nil, builders.Start)}); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	const wanted = `{"verdict": "Ignore", "reason": "NotJobPod", "message": "The pod is not controlled by a batch Job.", "recheckAfterSeconds": 0, "appFinishedAt": "",
		"pod": {"namespace": "", "name": ""}, "job": {"name": "", "deadline": ""},
		"policy": {"name": "", "mode": "DryRun", "gracePeriodSeconds": 0, "ignoredContainers": [], "execFallback": false},
		"proxy": {"injection": "None", "container": "", "statusPort": 0, "statusPortSource": ""}, "containers": [], "notes": []}`
	if err := json.Unmarshal([]byte(wanted), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestJSONOfNone(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, nil); err != nil || out.String() != "{\n  \"items\": []\n}\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// The table of reasons in the documentation is the table of the rules: each verdict and reason, in order, with something to do.
func TestDocumentationHasEveryReason(t *testing.T) {
	doc, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\w+)` \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, row[1]+" "+row[2])
		if !strings.HasSuffix(row[3], ".") && !strings.HasSuffix(row[3], "`") {
			t.Errorf("%s: what to do is %q", row[2], row[3])
		}
	}
	if diff := cmp.Diff(ruled(t), documented); diff != "" {
		t.Errorf("the table of docs/explain.md (-rules +documented):\n%s", diff)
	}
}

// ruled reads verdict and reason of every rule from the source, where they are not exported.
func ruled(t *testing.T) []string {
	file, err := parser.ParseFile(token.NewFileSet(), "../verdict/rules.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "rules" {
			return true
		}
		for _, rule := range spec.Values[0].(*ast.CompositeLit).Elts {
			fields := rule.(*ast.CompositeLit).Elts
			rows = append(rows, fields[0].(*ast.Ident).Name+" "+fields[1].(*ast.Ident).Name)
		}
		return false
	})
	if len(rows) == 0 {
		t.Fatal("no rules found in internal/verdict/rules.go")
	}
	return rows
}
