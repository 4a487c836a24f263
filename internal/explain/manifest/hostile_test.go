// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Files made to hurt: they are refused before they cost much.

package manifest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestTooManyContainers(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	head := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},`
	for name, tc := range map[string]struct {
		in, want string
	}{
		"containers":                     {head + `"spec":{"containers":` + list(maxContainers+1) + `}}`, `Pod "a": it has more than 10000 containers`},
		"init containers":                {head + `"spec":{"initContainers":` + list(maxContainers+1) + `}}`, `Pod "a": it has more than 10000 containers`},
		"of every kind together":         {head + `"spec":{"containers":` + list(5000) + `,"initContainers":` + list(5000) + `,"ephemeralContainers":[{}]}}`, "more than 10000 containers"},
		"statuses":                       {head + `"status":{"containerStatuses":` + list(maxContainers+1) + `}}`, "more than 10000 containers"},
		"given twice, the last one none": {head + `"spec":{"containers":` + list(maxContainers+1) + `,"containers":[]}}`, "more than 10000 containers"},
		"in a spec that comes again":     {head + `"spec":{"containers":` + list(maxContainers+1) + `},"spec":null}`, "more than 10000 containers"},
		"two million":                    {head + `"spec":{"containers":` + list(2_000_000) + `}}`, "more than 10000 containers"},
		"in YAML":                        {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n" + strings.Repeat("  - {}\n", maxContainers+1), "more than 10000 containers"},
		"of many Pods":                   {strings.Repeat(head+`"spec":{"containers":`+list(maxContainers)+`}}`, 11), "the Pods of the input have more than 100000 containers"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			var s Set
			err := s.Read("in", strings.NewReader(tc.in))
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d KiB took %s and allocated %d MiB", len(tc.in)>>10, took.Round(time.Millisecond), allocated)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if allocated > 400 || took > 20*time.Second {
				t.Errorf("it took %s and %d MiB to refuse", took, allocated)
			}
		})
	}
	var s Set
	if err := s.Read("in", strings.NewReader(head+`"spec":{"containers":`+list(maxContainers)+`},"status":{"containerStatuses":`+list(maxContainers)+`}}`)); err != nil {
		t.Errorf("as many as are allowed: %v", err)
	}
}
