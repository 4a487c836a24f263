// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The arithmetic, the limits and the document's parts.

package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	for name, tc := range map[string]struct {
		sorted  []float64
		q, want float64
	}{
		"one value":           {[]float64{3}, .99, 3},
		"median of two":       {[]float64{1, 2}, .5, 1.5},
		"between two":         {[]float64{0, 10, 20, 30, 40}, .9, 36},
		"first":               {[]float64{1, 2, 3}, 0, 1},
		"last":                {[]float64{1, 2, 3}, 1, 3},
		"none is no quantile": {nil, .5, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quantile(tc.sorted, tc.q); got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSteadyRate(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var moments []time.Time
	for i := range 1000 { // 100 a second, slow at both ends
		after := time.Duration(i) * 10 * time.Millisecond
		if i < 50 {
			after = 0
		}
		if i >= 950 {
			after *= 3
		}
		moments = append(moments, start.Add(time.Second+after))
	}
	rand.Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
	if got := steadyRate(moments, start); math.Abs(got-100) > .01 {
		t.Errorf("got %v, want 100", got)
	}
	if got := steadyRate(moments, start.Add(time.Second+4*time.Second)); math.Abs(got-100) > .01 {
		t.Errorf("of those after the fourth second: got %v, want 100", got)
	}
	if got := steadyRate(moments[:9], start); !math.IsNaN(got) {
		t.Errorf("of nine: got %v, want no rate", got)
	}
}

func TestFit(t *testing.T) {
	var x, exact, noisy []float64
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		x = append(x, float64(i))
		exact = append(exact, 5+.25*float64(i))
		noisy = append(noisy, 5+noise.NormFloat64())
	}
	if got := fit(x, exact); math.Abs(got.slope-.25) > 1e-9 || math.Abs(got.at-5) > 1e-9 || got.margin > 1e-6 {
		t.Errorf("points on a line: got %+v", got)
	}
	if got := fit(x, noisy); math.Abs(got.slope) > got.margin {
		t.Errorf("noise has no slope, got %+v", got)
	}
	if got := fit(x[:2], exact[:2]); !math.IsNaN(got.slope) {
		t.Errorf("two points are no evidence, got %+v", got)
	}
}

func TestJudge(t *testing.T) {
	bounds := limits{"storm": {
		"all": {All: true}, "most": {AtMost: new(5.0)}, "least": {AtLeast: new(.8)}, "none": {AtMost: new(0.0)}, "absent": {AtMost: new(1.0)},
	}}
	r := report{Scenario: "storm", Pods: 10, Figures: []figure{
		{"all", "pods", 9, "pods"}, {"most", "time", 5, "s"}, {"least", "ratio", math.NaN(), "×"}, {"none", "quits", 0, ""}, {"free", "size", 3.25, "MiB"},
	}}
	r.judge(bounds)
	got := map[string]string{}
	for _, j := range r.Judged {
		got[j.Key] = j.Want + map[bool]string{true: ", met", false: ", missed"}[j.Met]
	}
	want := map[string]string{
		"all": "all 10, missed", "most": "at most 5.00 s, met", "least": "at least 0.80 ×, missed", "none": "none, met", "free": ", met",
		"absent": "a figure, missed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err := r.missed()
	if err == nil || strings.Count(err.Error(), "missed: storm.") != 3 {
		t.Errorf("want three missed limits named, got %v", err)
	}
}

func TestLimitsFile(t *testing.T) {
	all, err := readLimits()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range scenarios {
		known[s.name] = true
	}
	for name, figures := range all {
		if !known[name] {
			t.Errorf("no scenario is called %s", name)
		}
		for key, l := range figures {
			bounds := 0
			for _, set := range []bool{l.All, l.AtLeast != nil, l.AtMost != nil} {
				if set {
					bounds++
				}
			}
			if bounds != 1 || l.Measured == "" {
				t.Errorf("%s.%s needs one bound, and what was measured", name, key)
			}
		}
	}
}

func TestReplaceIn(t *testing.T) {
	r := report{Scenario: "storm", About: "About.", Judged: []judged{
		{figure{"a", "first", 1, "s"}, "at most 2.00 s", true}, {figure{"b", "second", 3, "pods"}, "none", false}, {figure{"c", "third", 2.5, "MiB"}, "", true},
	}}
	document := "# Title\n<!-- scale:begin storm -->\nold\n<!-- scale:end storm -->\nprose\n<!-- scale:begin churn -->\nkept\n<!-- scale:end churn -->\n"
	got, err := r.replaceIn(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Title\n<!-- scale:begin storm -->\nAbout.\n", "| first | **1.00 s** | at most 2.00 s |", "| second | **3 pods, missed** | none |",
		"| third | 2.5 MiB |  |", "<!-- scale:end storm -->\nprose\n", "kept",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Error("the old figures are still there")
	}
	if again, err := r.replaceIn(got); err != nil || again != got {
		t.Errorf("writing it again changes it: %v", err)
	}
	if _, err := r.replaceIn("# Title\n"); err == nil {
		t.Error("a document without the markers is no document to write to")
	}
}

func TestReadFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		want    []string
		wantErr bool
	}{
		"everything by default": {nil, []string{"storm", "restart", "hung", "background", "churn"}, false},
		"some":                  {[]string{"-scenario=churn,storm"}, []string{"churn", "storm"}, false},
		"no such scenario":      {[]string{"-scenario=calm"}, nil, true},
		"too few pods":          {[]string{"-pods=1"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readFlags(tc.args)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(tc.want, got.scenarios); err == nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeapAlloc(t *testing.T) {
	got, err := heapAlloc("heap profile: 1: 2 [3: 4]\n\n# runtime.MemStats\n# Alloc = 1\n# HeapAlloc = 3145728\n# HeapSys = 9\n")
	if err != nil || got != 3 {
		t.Errorf("got %v MiB, %v", got, err)
	}
	if _, err := heapAlloc("nothing"); err == nil {
		t.Error("want an error")
	}
}

func TestPodTemplate(t *testing.T) {
	template, err := podTemplate()
	if err != nil {
		t.Fatal(err)
	}
	if len(template.Spec.Containers) != 2 || template.Spec.Containers[1].Name != "istio-proxy" {
		t.Errorf("want an app and its proxy, got %v", template.Spec.Containers)
	}
}
