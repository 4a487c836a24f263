// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves that what tests say is read, and that the document changes where it must and nowhere else.

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"secret of a test that passes\n"}
{"Action":"attr","Package":"p","Test":"TestA","Key":"kubernetes","Value":"1.28.15"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"output","Package":"p","Test":"TestB/c","Output":"=== RUN   TestB/c\n"}
{"Action":"output","Package":"p","Test":"TestB/c","Output":"    reap_test.go:150: Kubernetes 1.28 has no rules: none\n"}
{"Action":"output","Package":"p","Test":"TestB/c","Output":"--- SKIP: TestB/c (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB/c","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t1.2s\n"}
{"Action":"pass","Package":"p","Elapsed":1.2}
`
	const failing = `{"Action":"output","Package":"q","Test":"TestX","Output":"why X failed\n"}
{"Action":"fail","Package":"q","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"q","Test":"TestY","Output":"panic in Y\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q","Elapsed":0.1}
`
	for name, tc := range map[string]struct {
		events       string
		wantPassed   bool
		wantTests    map[string]int
		wantSkipped  map[string]string
		wantShown    []string
		wantNotShown []string
	}{
		"passes": {
			events: events, wantPassed: true, wantTests: map[string]int{"pass": 2, "skip": 1},
			wantSkipped: map[string]string{"TestB/c": "Kubernetes 1.28 has no rules: none"},
			wantShown:   []string{"ok  \tp\t1.2s\n"}, wantNotShown: []string{"secret"},
		},
		"a package fails": {
			events: events + failing, wantTests: map[string]int{"pass": 2, "skip": 1, "fail": 1},
			wantSkipped: map[string]string{"TestB/c": "Kubernetes 1.28 has no rules: none"},
			wantShown:   []string{"why X failed", "panic in Y", "FAIL\tq"}, wantNotShown: []string{"secret"},
		},
		"another release": {
			events: strings.Replace(events, "1.28.15", "1.37.2", 1), wantTests: map[string]int{"pass": 2, "skip": 1},
			wantSkipped: map[string]string{"TestB/c": "Kubernetes 1.28 has no rules: none"},
		},
		"no tests": {wantTests: map[string]int{}, wantSkipped: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResult("1.28.15")
			var shown bytes.Buffer
			if err := r.read(strings.NewReader(tc.events), &shown); err != nil {
				t.Fatal(err)
			}
			if r.passed() != tc.wantPassed {
				t.Errorf("passed is %v, want %v", r.passed(), tc.wantPassed)
			}
			if diff := cmp.Diff(tc.wantTests, r.tests); diff != "" {
				t.Errorf("The counts differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantSkipped, r.skipped); diff != "" {
				t.Errorf("The skipped tests differ (-want +got):\n%s", diff)
			}
			for _, want := range tc.wantShown {
				if strings.Count(shown.String(), want) != 1 {
					t.Errorf("want %q shown once, got:\n%s", want, &shown)
				}
			}
			for _, want := range tc.wantNotShown {
				if strings.Contains(shown.String(), want) {
					t.Errorf("want %q not shown, got:\n%s", want, &shown)
				}
			}
		})
	}
}

func TestTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1.28.15", "1.31.14", "1.34.4", "1.37.2"}, doc.releases()); diff != "" {
		t.Errorf("The releases differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(string(text), string(doc.bytes())); diff != "" {
		t.Errorf("It is not written as it was read (-want +got):\n%s", diff)
	}

	r := newResult("1.29.0")
	r.facts = map[string]string{"portforward/create+get": "SPDY", "portforward/create": "SPDY", "portforward/get": "forbidden", "SidecarContainers": "yes"}
	r.skipped = map[string]string{"TestB": "why not"}
	doc.set(r)
	again, err := parseDocument(doc.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if want, got := "| 1.29.0 | SPDY | SPDY | forbidden | ? | ? | ? | yes | ? |\n", again.rows["1.29.0"]; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if diff := cmp.Diff([]string{"1.29.0: `TestB`: why not"}, again.skips["1.29.0"]); diff != "" {
		t.Errorf("The skipped tests differ (-want +got):\n%s", diff)
	}
}

func TestNamed(t *testing.T) {
	documented := []string{"1.9.1", "1.10.0", "1.37.2"}
	got, err := named([]string{"newest", "1.30.0", "oldest"}, documented)
	if diff := cmp.Diff([]string{"1.37.2", "1.30.0", "1.9.1"}, got); diff != "" || err != nil {
		t.Errorf("Error %v; releases (-want +got):\n%s", err, diff)
	}
	if _, err := named([]string{"latest"}, documented); err == nil || !strings.Contains(err.Error(), "oldest or newest") {
		t.Errorf("Got %v for latest", err)
	}
}
