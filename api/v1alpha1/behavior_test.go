// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the API server does with an accepted policy: defaults, the status apart from the spec, and what kubectl shows.

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// A policy reads the same whatever was left out of it: the defaults are in the stored object, for kubectl and audits to see.
func TestDefaults(t *testing.T) {
	defaults := map[string]any{"mode": "Enforce", "priority": int64(0), "gracePeriodSeconds": int64(0)}
	with := func(more map[string]any) map[string]any {
		all := maps.Clone(defaults)
		maps.Copy(all, more)
		return all
	}
	absent := policyWithSpec(t, `{}`)
	unstructured.RemoveNestedField(absent.Object, "spec")

	cases := map[string]struct {
		policy *unstructured.Unstructured
		want   map[string]any
	}{
		"spec absent":     {policy: absent, want: defaults},
		"spec null":       {policy: policyWithSpec(t, `null`), want: defaults},
		"spec empty":      {policy: policyWithSpec(t, `{}`), want: defaults},
		"fields null":     {policy: policyWithSpec(t, `{mode: null, priority: null, gracePeriodSeconds: null}`), want: defaults},
		"mode given":      {policy: policyWithSpec(t, `mode: DryRun`), want: with(map[string]any{"mode": "DryRun"})},
		"priority given":  {policy: policyWithSpec(t, `priority: -5`), want: with(map[string]any{"priority": int64(-5)})},
		"selector, empty": {policy: policyWithSpec(t, `podSelector: {}`), want: with(map[string]any{"podSelector": map[string]any{}})},
		"quit, empty": {
			policy: policyWithSpec(t, `quit: {}`),
			want:   with(map[string]any{"quit": map[string]any{"timeoutSeconds": int64(10), "fallback": "None"}}),
		},
		"fallback given": {
			policy: policyWithSpec(t, `quit: {fallback: Exec}`),
			want:   with(map[string]any{"quit": map[string]any{"timeoutSeconds": int64(10), "fallback": "Exec"}}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := api.Create(t.Context(), tc.policy, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.policy.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// The Go type leaves out what is not set, so that a Go client gets the same defaults as a YAML file.
func TestDefaultsOfTheGoType(t *testing.T) {
	policy := create(t, v1alpha1.JobMeshPolicySpec{Quit: &v1alpha1.Quit{}})
	want := v1alpha1.JobMeshPolicySpec{
		Mode:               v1alpha1.ModeEnforce,
		Priority:           new(int32(0)),
		GracePeriodSeconds: new(int32(0)),
		Quit:               &v1alpha1.Quit{TimeoutSeconds: new(int32(10)), Fallback: v1alpha1.QuitFallbackNone},
	}
	if diff := cmp.Diff(want, policy.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestStatusIsASubresource(t *testing.T) {
	policy := create(t, v1alpha1.JobMeshPolicySpec{})
	status := exampleStatus(policy.Generation)

	policy.Status = status
	policy.Spec.Mode = v1alpha1.ModeDryRun
	if err := api.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.JobMeshPolicyStatus{}, policy.Status); diff != "" {
		t.Errorf("an update of the object must not write its status (-want +got):\n%s", diff)
	}
	if policy.Generation != 2 {
		t.Errorf("want generation 2 after a change of the spec, got %d", policy.Generation)
	}

	policy.Status = status
	policy.Spec.Mode = v1alpha1.ModeDisabled
	if err := api.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if policy.Spec.Mode != v1alpha1.ModeDryRun {
		t.Errorf("an update of the status must not write the spec, but mode is %s", policy.Spec.Mode)
	}
	if policy.Generation != 2 {
		t.Errorf("a status must not raise the generation, got %d", policy.Generation)
	}
	if diff := cmp.Diff(status, policy.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusValidation(t *testing.T) {
	policy := create(t, v1alpha1.JobMeshPolicySpec{})
	cases := map[string]struct {
		change     func(*v1alpha1.JobMeshPolicyStatus)
		wantErrors []string
	}{
		"negative count": {
			change:     func(s *v1alpha1.JobMeshPolicyStatus) { s.Pods.Stuck = new(int32(-1)) },
			wantErrors: []string{"status.pods.stuck: Invalid value: -1", "greater than or equal to 0"},
		},
		"negative reaped": {
			change:     func(s *v1alpha1.JobMeshPolicyStatus) { s.ReapedPods = new(int64(-1)) },
			wantErrors: []string{"status.reapedPods: Invalid value: -1", "greater than or equal to 0"},
		},
		"one condition twice": {
			change: func(s *v1alpha1.JobMeshPolicyStatus) {
				s.Conditions = append(s.Conditions, s.Conditions[0])
			},
			wantErrors: []string{`status.conditions[1]: Duplicate value: {"type":"Ready"}`},
		},
		"condition without a reason": {
			change:     func(s *v1alpha1.JobMeshPolicyStatus) { s.Conditions[0].Reason = "" },
			wantErrors: []string{"status.conditions[0].reason: Invalid value"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := policy.DeepCopy()
			changed.Status = exampleStatus(policy.Generation)
			tc.change(&changed.Status)
			err := api.Status().Update(t.Context(), changed)
			expectError(t, err, tc.wantErrors...)
		})
	}
}

func TestPrintColumns(t *testing.T) {
	policy := create(t, v1alpha1.JobMeshPolicySpec{Mode: v1alpha1.ModeDryRun})
	policy.Status = exampleStatus(policy.Generation)
	if err := api.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}

	var table metav1.Table
	path := "/apis/jobmesh.dev/v1alpha1/namespaces/default/jobmeshpolicies/" + policy.Name
	if !fetch(t, path, "application/json;as=Table;v=v1;g=meta.k8s.io", &table) {
		t.Fatalf("GET %s: not found", path)
	}
	var got []string
	for _, column := range table.ColumnDefinitions {
		got = append(got, column.Name)
		if column.Description == "" {
			t.Errorf("column %s has no description", column.Name)
		}
	}
	if diff := cmp.Diff([]string{"Name", "Mode", "Selected", "Stuck", "Reaped", "Ready", "Age"}, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("want one row, got %d", len(table.Rows))
	}
	// The last cell is the age, which time changes. Numbers are JSON's.
	want := []any{policy.Name, "DryRun", float64(4), float64(3), float64(7), "True"}
	if diff := cmp.Diff(want, table.Rows[0].Cells[:len(want)]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

// kubectl explain shows the descriptions of the OpenAPI document, which the server publishes soon after the CRD.
func TestEveryFieldIsExplained(t *testing.T) {
	const path, name = "/openapi/v3/apis/jobmesh.dev/v1alpha1", "dev.jobmesh.v1alpha1.JobMeshPolicy"
	var document spec3.OpenAPI
	deadline := time.Now().Add(30 * time.Second)
	for !fetch(t, path, "application/json", &document) || document.Components == nil || document.Components.Schemas[name] == nil {
		if time.Now().After(deadline) {
			t.Fatalf("the server never published %s at %s", name, path)
		}
		time.Sleep(100 * time.Millisecond)
	}
	policy := document.Components.Schemas[name]
	if !strings.HasPrefix(policy.Description, "JobMeshPolicy says how") {
		t.Errorf("the type's description is %q", policy.Description)
	}
	fields := 0
	for _, part := range []string{"spec", "status"} {
		fields += explained(t, part, policy.Properties[part])
	}
	if fields < 20 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

// explained fails the test for every field at and below path that has no description of its own, and counts them all.
func explained(t *testing.T, path string, schema spec.Schema) (fields int) {
	t.Helper()
	field := path[strings.LastIndex(path, ".")+1:]
	if !strings.HasPrefix(schema.Description, field+" ") {
		t.Errorf("the description of %s must begin with its name, but is %q", path, schema.Description)
	}
	fields = 1
	properties := schema.Properties
	if schema.Items != nil && schema.Items.Schema != nil {
		properties = schema.Items.Schema.Properties
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fields += explained(t, path+"."+name, properties[name])
	}
	return fields
}

// create stores a new policy until the test ends.
func create(t *testing.T, spec v1alpha1.JobMeshPolicySpec) *v1alpha1.JobMeshPolicy {
	t.Helper()
	policy := &v1alpha1.JobMeshPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "policy-"}, Spec: spec}
	if err := api.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := api.Delete(context.WithoutCancel(t.Context()), policy); err != nil {
			t.Error(err)
		}
	})
	return policy
}

// exampleStatus is a whole status with every field set.
func exampleStatus(generation int64) v1alpha1.JobMeshPolicyStatus {
	now := metav1.Now().Rfc3339Copy() // a time in JSON ends at the second
	return v1alpha1.JobMeshPolicyStatus{
		Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionReady,
			Status:             metav1.ConditionTrue,
			Reason:             v1alpha1.ReasonActive,
			Message:            "The policy is in force",
			ObservedGeneration: generation,
			LastTransitionTime: now,
		}},
		ObservedGeneration: &generation,
		Pods:               &v1alpha1.PodCounts{Selected: new(int32(4)), Stuck: new(int32(3)), Blocked: new(int32(1))},
		ReapedPods:         new(int64(7)),
		LastReapTime:       &now,
	}
}

// fetch reads one document of the API server, and returns false where there is none.
func fetch(t *testing.T, path, accept string, into any) (found bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := raw.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusNotFound {
		return false
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s: %s", path, response.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return true
}
