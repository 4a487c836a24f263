// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

const (
	pod     = "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
	podJSON = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}`
)

// names tells what a Set holds.
func names(s *Set) []string {
	var found []string
	for _, p := range s.Pods {
		found = append(found, "Pod "+p.Name)
	}
	for _, j := range s.Jobs {
		found = append(found, "Job "+j.Name)
	}
	for _, p := range s.Policies {
		found = append(found, "JobMeshPolicy "+p.Name)
	}
	if others := s.Others(); others != "" {
		found = append(found, others)
	}
	return found
}

func TestRead(t *testing.T) {
	deep := strings.Repeat("{kind: List, apiVersion: v1, items: [", maxLists)
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"YAML":                   {pod, []string{"Pod a"}},
		"JSON":                   {podJSON, []string{"Pod a"}},
		"JSON, one after other":  {podJSON + podJSON + "\n" + podJSON, []string{"Pod a", "Pod a", "Pod a"}},
		"JSON array":             {"[" + podJSON + "]", []string{"Pod a"}},
		"JSON, then YAML":        {podJSON + "\n---\n" + pod, []string{"Pod a", "Pod a"}},
		"documents":              {"# comment\n---\n" + pod + "\n---\n\n--- # again\n" + pod + "\n...\n", []string{"Pod a", "Pod a"}},
		"Windows":                {"\ufeff---\r\napiVersion: v1\r\nkind: Pod\r\nmetadata:\r\n  name: a\r\n---\r\n" + pod + "\r\n", []string{"Pod a", "Pod a"}},
		"PowerShell":             {utf16LE(pod), []string{"Pod a"}},
		"List":                   {"{apiVersion: v1, kind: List, items: [" + pod + ", {apiVersion: batch/v1, kind: Job, metadata: {name: j}}]}", []string{"Pod a", "Job j"}},
		"empty List and a pod":   {"{apiVersion: v1, kind: List, items: []}\n---\n{apiVersion: v1, kind: PodList, items: null}\n---\n" + pod, []string{"Pod a"}},
		"PodList without kinds":  {"{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}", []string{"Pod a"}},
		"JobList":                {"{apiVersion: batch/v1, kind: JobList, items: [{metadata: {name: j}}]}", []string{"Job j"}},
		"JobMeshPolicyList":      {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicyList, items: [{metadata: {name: p}}]}", []string{"JobMeshPolicy p"}},
		"Lists in Lists":         {deep + pod + strings.Repeat("]}", maxLists), []string{"Pod a"}},
		"unknown fields, nulls":  {"{apiVersion: v1, kind: Pod, metadata: {name: a, x: 1}, spec: {containers: null, y: [{}]}, status: null, z: {}}", []string{"Pod a"}},
		"duplicate keys":         {pod[:len(pod)-1] + ", spec: {}, spec: {}}", []string{"Pod a"}},
		"others":                 {"{kind: A, apiVersion: x/v1}\n---\n{kind: A, apiVersion: x/v1}\n---\n{kind: AllowList, apiVersion: x/v1}", []string{"2 A, 1 AllowList"}},
		"other groups' Pod, Job": {"{kind: Pod, apiVersion: x/v1}\n---\n{kind: Job, apiVersion: batch.volcano.sh/v1alpha1}", []string{"1 Job, 1 Pod"}},
		"policy with a status":   {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: p}, status: {new: 1, conditions: [{type: Ready}]}}", []string{"JobMeshPolicy p"}},
		"policy with nulls":      {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: p, creationTimestamp: null}, spec: {mode: null, podSelector: null, quit: {}}}", []string{"JobMeshPolicy p"}},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			if err := s.Read("in", strings.NewReader(tc.in)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(&s)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	const policy = "apiVersion: jobmesh.dev/v1alpha1\nkind: JobMeshPolicy\nmetadata: {name: p}\nspec: "
	tooDeep := strings.Repeat("{kind: List, apiVersion: v1, items: [", maxLists+1)
	for name, tc := range map[string]struct{ in, want string }{
		"empty":               {"", "the input is empty"},
		"only comments":       {"# nothing\n---\n", "the input is empty"},
		"only null":           {"null", "the input is empty"},
		"binary":              {"\x00\x01", "it is not a text in UTF-8"},
		"Latin-1":             {"name: gr\xf6\xdfe", "it is not a text in UTF-8"},
		"HTML":                {"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "this is no Kubernetes object: it must be a mapping with apiVersion and kind"},
		"prose":               {"No resources found in default namespace.", "this is no Kubernetes object"},
		"table":               {"NAME   READY   STATUS\na      1/2     Running", "this is no Kubernetes object"},
		"no kind":             {"spec: {}", "this is no Kubernetes object: it has no kind"},
		"number":              {"[1]", "this is no Kubernetes object"},
		"truncated YAML":      {"kind: Pod\nspec: {containers: [", "invalid YAML: line 2"},
		"truncated JSON":      {podJSON[:30], "invalid JSON after line 1: unexpected EOF"},
		"bad second document": {pod + "\n---\na: b: c", "invalid YAML: document 2: mapping values are not allowed"},
		"bad second JSON":     {podJSON + "\n}", "invalid JSON after line 1: invalid character '}'"},
		"text after ---":      {"a: b\n--- c", "invalid YAML"},
		"kind is no string":   {"{kind: [Pod]}", "kind: must be a string, and is array"},
		"items is no list":    {"{apiVersion: v1, kind: List, items: {}}", "items: must be a list, and is object"},
		"apiVersion":          {"{apiVersion: a/b/c, kind: Pod}", "apiVersion: "},
		"old Pod":             {"{apiVersion: v1beta3, kind: Pod, metadata: {name: a}}", `Pod "a": apiVersion: Unsupported value: "v1beta3": supported values: "v1"`},
		"Pod with a typo":     {"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: app}}", `Pod "a": spec.containers: must be a list, and is string`},
		"Pod with a bad time": {"{apiVersion: v1, kind: Pod, metadata: {name: a, creationTimestamp: now}}", `Pod "a": `},
		"Lists in Lists":      {tooDeep + strings.Repeat("]}", maxLists+1), "it nests Lists more than 8 deep"},
		"deep YAML":           {strings.Repeat("[", 1<<16), "invalid JSON"},
		"deep flow":           {strings.Repeat("{a: ", 1<<16), "invalid YAML: "},
		"a lost last line":    {strings.Repeat("a", 1<<16), "this is no Kubernetes object"},
		"deep blocks":         {strings.Repeat("- ", 1<<16), "invalid YAML"},
		"aliases":             {bomb(), "invalid YAML: document contains excessive aliasing"},
		"many documents":      {strings.Repeat("{}", maxDocuments+1), "more than 50000 documents"},
		"many in a pod":       {`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + strings.Repeat("{},", maxValues+1) + "{}]}}", "the input holds too many values"},
		"long YAML":           {"a: " + strings.Repeat("b", maxYAMLBytes), "a YAML document is larger than 16 MiB"},
		"long":                {strings.Repeat(" ", MaxBytes+1), "the input is larger than 64 MiB"},

		"unknown policy version": {"{apiVersion: jobmesh.dev/v2, kind: JobMeshPolicy, metadata: {name: p}}", `apiVersion: Unsupported value: "jobmesh.dev/v2": supported values: "jobmesh.dev/v1alpha1"`},
		"policy without a name":  {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy}", "metadata.name: Required value"},
		"policy's name":          {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: A b}}", `metadata.name: Invalid value: "A b"`},
		"mode":                   {policy + "{mode: enforce}", `JobMeshPolicy "p": spec.mode: Unsupported value: "enforce": supported values: "Enforce", "DryRun", "Disabled"`},
		"mode is a boolean":      {policy + "{mode: true}", `spec.mode: Invalid value: "boolean": spec.mode in body must be of type string`},
		"unknown field":          {policy + "{grace: 1}", `unknown field "spec.grace"`},
		"unknown metadata":       {"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: p, x: 1}}", `unknown field "metadata.x"`},
		"wrong case":             {policy + "{Mode: DryRun}", `unknown field "spec.Mode"`},
		"twice in YAML":          {policy + "{mode: DryRun, mode: Enforce}", `key "mode" already set in map`},
		"twice in JSON":          {`{"apiVersion":"jobmesh.dev/v1alpha1","kind":"JobMeshPolicy","metadata":{"name":"p"},"spec":{"mode":"DryRun","mode":"Enforce"}}`, `duplicate field "spec.mode"`},
		"bounds":                 {policy + "{priority: 1001, gracePeriodSeconds: -1}", "spec.gracePeriodSeconds in body should be greater than or equal to 0; spec.priority: Invalid value: 1001: spec.priority in body should be less than or equal to 1000"},
		"huge number":            {policy + "{priority: 1000000000000000000000}", "spec.priority: "},
		"fraction":               {policy + "{quit: {timeoutSeconds: 1.5}}", "spec.quit.timeoutSeconds: "},
		"ignored istio-proxy":    {policy + "{ignoredContainers: [istio-proxy]}", "spec.ignoredContainers"},
		"ignored twice":          {policy + "{ignoredContainers: [a, a]}", `spec.ignoredContainers[1]: Duplicate value: "a"`},
		"selector's operator":    {policy + "{podSelector: {matchExpressions: [{key: a, operator: Is}]}}", `spec.podSelector.matchExpressions[0].operator: Unsupported value: "Is"`},
		"selector's values":      {policy + "{podSelector: {matchExpressions: [{key: a, operator: In}]}}", "spec.podSelector.matchExpressions[0]"},
		"selector's key":         {policy + "{podSelector: {matchLabels: {-: a}}}", "spec.podSelector.matchLabels"},
		"many faults":            {policy + "{mode: a, priority: 5000, gracePeriodSeconds: -1, quit: {fallback: b}}", "; and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			var s Set
			err := s.Read("in", strings.NewReader(tc.in))
			if err == nil || !strings.HasPrefix(err.Error(), "in: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// The bound holds for all sources together.
func TestReadBoundsTheSum(t *testing.T) {
	var s Set
	filler := strings.Repeat(" ", MaxBytes-len(pod))
	if err := s.Read("first", strings.NewReader(podJSON[:0]+pod+filler)); err == nil {
		t.Fatal("a YAML document of 64 MiB was read")
	}
	if err := s.Read("second", strings.NewReader(pod)); err == nil || !strings.Contains(err.Error(), "second: the input is larger") {
		t.Errorf("error %v", err)
	}
}

func TestReadFails(t *testing.T) {
	err := new(Set).Read("in", failing{})
	if want := "in: broken"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) {
	return 0, &os.PathError{Op: "read", Path: "in", Err: errors.New("broken")}
}

// The policies of files are checked by the very rules of the cluster.
func TestSchemaIsTheCRD(t *testing.T) {
	want, err := os.ReadFile("../../../config/crd/bases/jobmesh.dev_jobmeshpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, crd) {
		t.Error("jobmeshpolicies.yaml is not the CRD any more; run: go generate ./internal/explain/manifest")
	}
	if _, err := newChecker(); err != nil {
		t.Fatal(err)
	}
}

// Whatever the bytes, reading ends, with objects or with an error.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", pod, podJSON, podJSON + "\n---\n" + pod, utf16LE(pod), "[" + podJSON + ",1]", "- a", "{", "\xfe\xff", "--- a", "a: *b", "a: &a [*a]",
		"{apiVersion: v1, kind: List, items: [{apiVersion: batch/v1, kind: Job, spec: {activeDeadlineSeconds: 1}}, null, 1]}",
		"{apiVersion: v1, kind: PodList, items: [{spec: {containers: [null, {name: istio-proxy, args: [proxy, router]}]}}]}",
		"{apiVersion: jobmesh.dev/v1alpha1, kind: JobMeshPolicy, metadata: {name: p}, spec: {mode: x, podSelector: {matchLabels: {a: 1}}, quit: {timeoutSeconds: 1e9}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Set
		if err := s.Read("in", bytes.NewReader(data)); err == nil && len(data) == 0 {
			t.Error("nothing was read without an error")
		}
		_ = s.Others()
	})
}

func utf16LE(s string) string {
	out := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(s)) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

// bomb is YAML that would grow a million times by its aliases.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		at, before := string(rune('1'+i)), string(rune('0'+i))
		text += "a" + at + ": &a" + at + " [" + strings.TrimSuffix(strings.Repeat("*a"+before+", ", 10), ", ") + "]\n"
	}
	return text
}
