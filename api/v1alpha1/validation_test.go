// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What a user may write in a spec, and what the API server answers to the rest: the field, and what is allowed there.

package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

func TestSpecValidation(t *testing.T) {
	cases := map[string]struct {
		// spec is the YAML of a whole spec.
		spec string
		// wantErrors are parts of the one error; none means that the spec is accepted.
		wantErrors []string
	}{
		"empty":                 {spec: `{}`},
		"null":                  {spec: `null`},
		"mode Enforce":          {spec: `mode: Enforce`},
		"mode DryRun":           {spec: `mode: DryRun`},
		"mode Disabled":         {spec: `mode: Disabled`},
		"priority, lowest":      {spec: `priority: -1000`},
		"priority, highest":     {spec: `priority: 1000`},
		"grace period, longest": {spec: `gracePeriodSeconds: 86400`},
		"timeout, shortest":     {spec: `quit: {timeoutSeconds: 1}`},
		"timeout, longest":      {spec: `quit: {timeoutSeconds: 60}`},
		"fallback None":         {spec: `quit: {fallback: None}`},
		"fallback Exec":         {spec: `quit: {fallback: Exec}`},
		"quit, empty":           {spec: `quit: {}`},
		"selector, empty":       {spec: `podSelector: {}`},
		"selector, empty parts": {spec: `podSelector: {matchLabels: {}, matchExpressions: []}`},
		"selector, every form": {spec: `
podSelector:
  matchLabels: {app: report, example.com/team: billing, batch.kubernetes.io/job-name: a.b_C-1, empty: ""}
  matchExpressions:
  - {key: tier, operator: In, values: [batch, cron]}
  - {key: tier, operator: NotIn, values: [web, ""]}
  - {key: example.com/tier, operator: Exists}
  - {key: x, operator: DoesNotExist, values: []}`},
		"selector, longest names": {spec: fmt.Sprintf(`podSelector: {matchLabels: {%s.%s/%s: %s}}`,
			strings.Repeat("a", 63), strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63))},
		"ignored containers":       {spec: `ignoredContainers: [log-shipper, cloud-sql-proxy, a]`},
		"ignored containers, none": {spec: `ignoredContainers: []`},

		"mode, unknown": {
			spec:       `mode: Always`,
			wantErrors: []string{`spec.mode: Unsupported value: "Always"`, `"Enforce", "DryRun", "Disabled"`},
		},
		"mode, wrong case":    {spec: `mode: enforce`, wantErrors: []string{`spec.mode: Unsupported value: "enforce"`}},
		"mode, empty":         {spec: `mode: ""`, wantErrors: []string{`spec.mode: Unsupported value: ""`}},
		"mode, a number":      {spec: `mode: 1`, wantErrors: []string{`spec.mode`, `must be of type string: "integer"`}},
		"priority, too low":   {spec: `priority: -1001`, wantErrors: []string{`spec.priority: Invalid value: -1001`, `greater than or equal to -1000`}},
		"priority, too high":  {spec: `priority: 1001`, wantErrors: []string{`spec.priority: Invalid value: 1001`, `less than or equal to 1000`}},
		"priority, a string":  {spec: `priority: high`, wantErrors: []string{`spec.priority`, `must be of type integer: "string"`}},
		"grace, negative":     {spec: `gracePeriodSeconds: -1`, wantErrors: []string{`spec.gracePeriodSeconds: Invalid value: -1`, `greater than or equal to 0`}},
		"grace, too long":     {spec: `gracePeriodSeconds: 86401`, wantErrors: []string{`spec.gracePeriodSeconds: Invalid value: 86401`, `less than or equal to 86400`}},
		"grace, a duration":   {spec: `gracePeriodSeconds: 30s`, wantErrors: []string{`spec.gracePeriodSeconds`, `must be of type integer: "string"`}},
		"timeout, zero":       {spec: `quit: {timeoutSeconds: 0}`, wantErrors: []string{`spec.quit.timeoutSeconds: Invalid value: 0`, `greater than or equal to 1`}},
		"timeout, too long":   {spec: `quit: {timeoutSeconds: 61}`, wantErrors: []string{`spec.quit.timeoutSeconds: Invalid value: 61`, `less than or equal to 60`}},
		"fallback, unknown":   {spec: `quit: {fallback: exec}`, wantErrors: []string{`spec.quit.fallback: Unsupported value: "exec"`, `"None", "Exec"`}},
		"unknown field":       {spec: `podSelectors: {}`, wantErrors: []string{`unknown field "spec.podSelectors"`}},
		"unknown field, deep": {spec: `quit: {timeout: 5}`, wantErrors: []string{`unknown field "spec.quit.timeout"`}},

		"label key with a blank": {
			spec:       `podSelector: {matchLabels: {"my app": x}}`,
			wantErrors: []string{`spec.podSelector.matchLabels: Invalid value`, `keys must be label names, such as app or example.com/team`},
		},
		"label key with two slashes": {
			spec:       `podSelector: {matchLabels: {a/b/c: x}}`,
			wantErrors: []string{`spec.podSelector.matchLabels: Invalid value`, `keys must be label names`},
		},
		"label key with an upper case prefix": {
			spec:       `podSelector: {matchLabels: {Example.com/a: x}}`,
			wantErrors: []string{`keys must be label names`},
		},
		"label key with a name of 64 characters": {
			spec:       fmt.Sprintf(`podSelector: {matchLabels: {%s: x}}`, strings.Repeat("a", 64)),
			wantErrors: []string{`keys must be label names`},
		},
		"label key with a prefix of 254 characters": {
			spec:       fmt.Sprintf(`podSelector: {matchLabels: {%s/b: x}}`, strings.Repeat("a", 254)),
			wantErrors: []string{`keys must be label names`},
		},
		"label value with a blank": {
			spec:       `podSelector: {matchLabels: {app: my app}}`,
			wantErrors: []string{`spec.podSelector.matchLabels[app]: Invalid value: "my app"`, `must be a label value: letters, digits, '-', '_' and '.'`},
		},
		"label value of 64 characters": {
			spec:       fmt.Sprintf(`podSelector: {matchLabels: {app: %s}}`, strings.Repeat("a", 64)),
			wantErrors: []string{`spec.podSelector.matchLabels.app: Too long`, `63`},
		},
		"33 labels": {
			spec:       fmt.Sprintf(`podSelector: {matchLabels: {%s}}`, list(33, "k%d: v")),
			wantErrors: []string{`spec.podSelector.matchLabels: Too many: 33: must have at most 32 items`},
		},
		"17 conditions": {
			spec:       fmt.Sprintf(`podSelector: {matchExpressions: [%s]}`, list(17, "{key: k%d, operator: Exists}")),
			wantErrors: []string{`spec.podSelector.matchExpressions: Too many: 17: must have at most 16 items`},
		},
		"operator, unknown": {
			spec: `podSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}`,
			wantErrors: []string{
				`spec.podSelector.matchExpressions[0].operator: Unsupported value: "Equals"`, `"In", "NotIn", "Exists", "DoesNotExist"`,
			},
		},
		"operator, missing": {
			spec:       `podSelector: {matchExpressions: [{key: a}]}`,
			wantErrors: []string{`spec.podSelector.matchExpressions[0].operator: Required value`},
		},
		"key, missing": {
			spec:       `podSelector: {matchExpressions: [{operator: Exists}]}`,
			wantErrors: []string{`spec.podSelector.matchExpressions[0].key: Required value`},
		},
		"key, bad": {
			spec: `podSelector: {matchExpressions: [{key: -a, operator: Exists}]}`,
			wantErrors: []string{
				`spec.podSelector.matchExpressions[0].key: Invalid value: "-a"`, `must be a label name, such as app or example.com/team`,
			},
		},
		"In without values": {
			spec: `podSelector: {matchExpressions: [{key: a, operator: In}]}`,
			wantErrors: []string{
				`spec.podSelector.matchExpressions[0].values: Invalid value`, `values must have at least one entry where operator is In or NotIn`,
			},
		},
		"NotIn with no value": {
			spec:       `podSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}`,
			wantErrors: []string{`values must have at least one entry where operator is In or NotIn`},
		},
		"Exists with a value": {
			spec: `podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}`,
			wantErrors: []string{
				`spec.podSelector.matchExpressions[0].values: Invalid value`, `values must be empty where operator is Exists or DoesNotExist`,
			},
		},
		"values, one twice": {
			spec:       `podSelector: {matchExpressions: [{key: a, operator: In, values: [b, b]}]}`,
			wantErrors: []string{`spec.podSelector.matchExpressions[0].values[1]: Duplicate value: "b"`},
		},
		"values, bad": {
			spec:       `podSelector: {matchExpressions: [{key: a, operator: In, values: [_b]}]}`,
			wantErrors: []string{`spec.podSelector.matchExpressions[0].values[0]: Invalid value: "_b"`, `must be a label value`},
		},
		"65 values": {
			spec:       fmt.Sprintf(`podSelector: {matchExpressions: [{key: a, operator: In, values: [%s]}]}`, list(65, "v%d")),
			wantErrors: []string{`spec.podSelector.matchExpressions[0].values: Too many: 65: must have at most 64 items`},
		},
		"ignored container istio-proxy": {
			spec:       `ignoredContainers: [a, istio-proxy]`,
			wantErrors: []string{`spec.ignoredContainers[1]: Invalid value: "istio-proxy"`, `must be another container than istio-proxy`},
		},
		"ignored container, bad name": {
			spec:       `ignoredContainers: [Log_Shipper]`,
			wantErrors: []string{`spec.ignoredContainers[0]: Invalid value: "Log_Shipper"`, `must be a container name: lower case letters, digits and '-'`},
		},
		"ignored container, empty name": {
			spec:       `ignoredContainers: [""]`,
			wantErrors: []string{`spec.ignoredContainers[0]: Invalid value: ""`, `at least 1 chars long`},
		},
		"ignored container, twice": {
			spec:       `ignoredContainers: [a, a]`,
			wantErrors: []string{`spec.ignoredContainers[1]: Duplicate value: "a"`},
		},
		"33 ignored containers": {
			spec:       fmt.Sprintf(`ignoredContainers: [%s]`, list(33, "c%d")),
			wantErrors: []string{`spec.ignoredContainers: Too many: 33: must have at most 32 items`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := api.Create(t.Context(), policyWithSpec(t, tc.spec), client.DryRunAll)
			if len(tc.wantErrors) == 0 {
				if err != nil {
					t.Fatalf("want the spec accepted, got: %v", err)
				}
				return
			}
			expectError(t, err, tc.wantErrors...)
		})
	}
}

func TestSamplesAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		tried++
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sample := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict(text, &sample.Object); err != nil {
				t.Fatal(err)
			}
			sample.SetNamespace("default")
			if err := api.Create(t.Context(), sample, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
	if tried == 0 {
		t.Error("there is no sample")
	}
}

// policyWithSpec gives a new policy the spec of a YAML text. No Go type of ours is in between, which would drop or add fields.
func policyWithSpec(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var spec any
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatalf("bad YAML in the test: %v\n%s", err, text)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("JobMeshPolicy"))
	policy.SetNamespace("default")
	policy.SetGenerateName("policy-")
	return policy
}

// list writes format n times, with a number each.
func list(n int, format string) string {
	entries := make([]string, n)
	for i := range n {
		entries[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(entries, ", ")
}
