// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What can be told without a node: the arithmetic, the reading of logs, the document.

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestSpread(t *testing.T) {
	for name, tc := range map[string]struct {
		values                           []float64
		wantMedian, wantP95, wantQ1, max float64
	}{
		"None": {},
		"One":  {[]float64{3}, 3, 3, 3, 3},
		"Even": {[]float64{4, 1, 3, 2}, 2.5, 3.85, 1.75, 4},
		"Odd":  {[]float64{5, 1, 3}, 3, 4.8, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			got := spreadOf(tc.values)
			for what, pair := range map[string][2]float64{"median": {got.Median, tc.wantMedian}, "p95": {got.P95, tc.wantP95},
				"first quartile": {got.Q1, tc.wantQ1}, "max": {got.Max, tc.max}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9 {
					t.Errorf("%s %v, want %v", what, pair[0], pair[1])
				}
			}
		})
	}
}

func TestReadExits(t *testing.T) {
	const log = `time="2026-11-30T18:17:51Z" level=info msg="received container exit event container_id:\"ab\"  id:\"ab\"  pid:442  exited_at:{seconds:100  nanos:5}"
time="2026-11-30T18:17:52Z" level=info msg="received container exit event container_id:\"ab\"  id:\"c0\"  pid:443  exited_at:{seconds:101  nanos:5}"
time="2026-11-30T18:17:53Z" level=info msg="received container exit event container_id:\"cd\"  id:\"cd\"  pid:444  exit_status:3  exited_at:{seconds:102}"
time="2026-11-30T18:17:54Z" level=info msg="received sandbox exit event container_id:\"ef\"  id:\"ef\"  exited_at:{seconds:103  nanos:1}"
`
	file := filepath.Join(t.TempDir(), "containerd.log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readExits(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"ab": time.Unix(100, 5), "cd": time.Unix(102, 0)}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAttemptOf(t *testing.T) {
	b := &bench{namespaces: map[string]string{jobMesh: "ours"}, alone: map[types.NamespacedName]podSeen{{Namespace: "ours", Name: "single-1-x"}: {}}}
	line := func(msg, namespace, name string) string {
		return `2026-11-30T18:17:51.5Z {"level":"info","msg":"` + msg + `","namespace":"` + namespace + `","name":"` + name + `",` +
			`"duration":"30ms","liveRead":"8ms","decision":"0s","connect":"2ms","upgrade":"13ms","exchange":"4ms","protocol":"WebSocket"}` + "\n"
	}
	const asked = "Asked the proxy to quit"
	for name, tc := range map[string]struct {
		line      string
		want      bool
		wantBurst bool
	}{
		"Alone":            {line(asked, "ours", "single-1-x"), true, false},
		"Burst":            {line(asked, "ours", "burst-1-0-y"), true, true},
		"WarmUp":           {line(asked, "ours", "single-0-z"), false, false},
		"AnotherNamespace": {line(asked, "theirs", "single-1-x"), false, false},
		"AnotherMessage":   {line("Reaped the pod", "ours", "single-1-x"), false, false},
		"NoJSON":           {"2026-11-30T18:17:51.5Z hello\n", false, false},
		"Nothing":          {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := b.attemptOf(tc.line)
			if ok != tc.want || got.Burst != tc.wantBurst {
				t.Errorf("counted %v, in a burst %v", ok, got.Burst)
			}
			if ok && (got.Duration != .03 || got.LiveRead != .008 || got.Upgrade != .013) {
				t.Errorf("read %+v", got)
			}
		})
	}
}

// invented is a run in which JobMesh's Jobs take so many seconds.
func invented(jobMeshJob, jobMeshBurst float64, reaped int) *results {
	r := &results{Date: time.Unix(0, 0), Load: 1, Machine: machine{CPUs: 2, Own: true}}
	for _, k := range kinds {
		s := single{Kind: k.key, JobFinished: 2, PodFinished: 1}
		b := burst{Kind: k.key, Pods: 20, JobFinished: 14}
		switch k.key {
		case draining:
			s.JobFinished = 8
		case jobMesh:
			s.JobFinished, b.JobFinished, b.Reaped = jobMeshJob, jobMeshBurst, reaped
		}
		for range 3 {
			r.Singles = append(r.Singles, s)
			r.Timelines = append(r.Timelines, timeline{Kind: k.key, Told: .5, ProxyExit: .1, Finished: 1, Job: 1})
		}
		if k.burst {
			r.Bursts = append(r.Bursts, b)
		}
	}
	r.Attempts = []attempt{{Duration: .03, Protocol: "WebSocket"}}
	return r
}

func TestThresholds(t *testing.T) {
	limits, err := readThresholds()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		results *results
		want    []string // parts of the error, one per threshold that is missed
	}{
		"Met":       {invented(3.1, 11, 20), nil},
		"SlowJob":   {invented(4, 11, 20), []string{"a native sidecar that drains is 0.50 ×", "no sidecar is 2.00 ×"}},
		"SlowBurst": {invented(3.1, 15, 20), []string{"burst: first app's end"}},
		"NotReaped": {invented(3.1, 11, 19), []string{"pods reaped is 19"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := summarize(tc.results, limits).missed()
			if err == nil {
				err = errors.New("")
			}
			if lines := strings.Count(err.Error(), "missed:"); lines != len(tc.want) {
				t.Errorf("%d thresholds are missed, want %d: %v", lines, len(tc.want), err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		})
	}
}

// The document is written for every shape of results, and its pictures are well formed.
func TestWrite(t *testing.T) {
	elsewhere := invented(3.1, 11, 20)
	elsewhere.Timelines, elsewhere.Bursts, elsewhere.Machine.Own = nil, nil, false
	for name, tc := range map[string]struct {
		results      *results
		wantPictures int
	}{
		"Whole":             {invented(3.1, 11, 20), 3},
		"WithoutLogsBursts": {elsewhere, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := summarize(tc.results, thresholds{}).write(dir); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "performance.md"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "NaN") || strings.Contains(string(text), "<no value>") {
				t.Errorf("the document has holes:\n%s", text)
			}
			pictures, err := filepath.Glob(filepath.Join(dir, "images/*.svg"))
			if err != nil || len(pictures) != tc.wantPictures {
				t.Errorf("%d pictures (%v), want %d", len(pictures), err, tc.wantPictures)
			}
			for _, picture := range pictures {
				if !strings.Contains(string(text), filepath.Base(picture)) {
					t.Errorf("the document does not show %s", picture)
				}
				file, err := os.Open(picture)
				if err != nil {
					t.Fatal(err)
				}
				decoder := xml.NewDecoder(file)
				for err == nil {
					_, err = decoder.Token()
				}
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", picture, err)
				}
				_ = file.Close()
			}
		})
	}
}
