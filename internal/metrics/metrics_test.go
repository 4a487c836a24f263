// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Every metric by its name, help and labels: they are a public contract.

package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/metrics"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/verdict"
	"github.com/jobmesh/jobmesh/internal/version"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func newRecorder(t *testing.T) (*prometheus.Registry, *ledger.Ledger, *metrics.Recorder) {
	t.Helper()
	registry, book := prometheus.NewPedanticRegistry(), ledger.New(func(types.NamespacedName) {})
	recorder, err := metrics.New(registry, book)
	if err != nil {
		t.Fatal(err)
	}
	return registry, book, recorder
}

// script is a day in the life of two namespaces.
func script(book *ledger.Ledger, r *metrics.Recorder) {
	add := func(name string, record ledger.Record) { book.Update(build.MakePod(name).Obj(), record) }
	at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }
	add("busy-a", ledger.Record{Injection: istio.InjectionClassic, Policy: "reap", Verdict: verdict.Wait, Reason: verdict.AppRunning})
	add("native-a", ledger.Record{Injection: istio.InjectionNative, Verdict: verdict.Ignore, Reason: verdict.NativeSidecar})
	add("plain-a", ledger.Record{Injection: istio.InjectionNone, Verdict: verdict.Ignore, Reason: verdict.NoProxy})
	add("gateway-a", ledger.Record{Injection: istio.InjectionGateway, Verdict: verdict.Ignore, Reason: verdict.Gateway})
	add("stuck-a", ledger.Record{Injection: istio.InjectionClassic, Policy: "reap", Verdict: verdict.Quit, Reason: verdict.Stuck, Stuck: true, AppFinishedAt: at(20)})
	add("stuck-b", ledger.Record{Injection: istio.InjectionClassic, Policy: "reap", Verdict: verdict.Quit, Reason: verdict.Stuck, Stuck: true, AppFinishedAt: at(10)})
	add("stuck-c", ledger.Record{Injection: istio.InjectionClassic, Policy: "reap", Verdict: verdict.Quit, Reason: verdict.Stuck, Stuck: true})
	add("observed", ledger.Record{Injection: istio.InjectionClassic, Verdict: verdict.Observe, Reason: verdict.DryRun, Stuck: true, AppFinishedAt: at(30)})
	book.SetPolicy(types.NamespacedName{Namespace: "default", Name: "reap"}, "Enforce")
	book.SetPolicy(types.NamespacedName{Namespace: "default", Name: "look"}, "DryRun")
	book.SetPolicy(types.NamespacedName{Namespace: "other", Name: "look"}, "DryRun")

	r.QuitAttempted("default", "reap", quit.OutcomeRefused, quit.RoutePortForward, 20*time.Millisecond)
	r.QuitAttempted("default", "reap", quit.OutcomeAccepted, quit.RoutePortForward, 30*time.Millisecond)
	r.QuitAttempted("other", "look", quit.OutcomeAccepted, quit.RouteExec, 3*time.Second)
	ended := r.QuitBegins()
	r.QuitBegins()
	r.QuitBegins()
	ended()
	r.QuitAccepted(1500 * time.Millisecond)
	r.QuitAccepted(-time.Second) // a node's clock runs ahead
	r.PodReaped("default", "reap", metrics.ResultSucceeded)
	r.PodReaped("other", "look", metrics.ResultFailed)
	r.ProxyExited(700 * time.Millisecond)
	r.ProxyExited(-time.Second)
}

func TestEveryMetric(t *testing.T) {
	registry, book, recorder := newRecorder(t)
	script(book, recorder)
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	build := fmt.Sprintf("jobmesh_build_info{go_version=%q,revision=%q,version=%q} 1", runtime.Version(), version.Commit(), version.Version)
	want := strings.ReplaceAll(string(text), "BUILD_INFO", build)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	// No metric beside those of the file, and none in the file that is never shown.
	var got []string
	for _, family := range families {
		got = append(got, family.GetName())
	}
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(want, -1) {
		listed = append(listed, match[1])
	}
	if diff := cmp.Diff(listed, got); diff != "" {
		t.Errorf("Metrics (-listed +got):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("Lint: %s: %s", p.Metric, p.Text)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if name := label.GetValue(); strings.Contains(name, "stuck-") || strings.Contains(name, "-job") || strings.Contains(name, "-uid") {
					t.Errorf("%s names a pod: %s", family.GetName(), name)
				}
			}
		}
	}
}

func TestANamespaceGoes(t *testing.T) {
	registry, book, recorder := newRecorder(t)
	script(book, recorder)
	recorder.NamespaceGone("other")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "jobmesh_policies" {
			continue // that is the ledger's to end
		}
		for _, m := range family.GetMetric() {
			if strings.Contains(m.String(), `"other"`) {
				t.Errorf("%s: %s", family.GetName(), m)
			}
		}
	}
	if n, err := testutil.GatherAndCount(registry, "jobmesh_quit_attempts_total", "jobmesh_reaped_pods_total"); err != nil || n != 3 {
		t.Errorf("%d series of the other namespace are left, %v; want 3", n, err)
	}
}

func TestAPolicyGoes(t *testing.T) {
	registry, book, recorder := newRecorder(t)
	script(book, recorder)
	recorder.PolicyGone("default", "reap")
	recorder.PolicyGone("default", "look") // of the same name in another namespace
	if n, err := testutil.GatherAndCount(registry, "jobmesh_quit_attempts_total", "jobmesh_reaped_pods_total"); err != nil || n != 2 {
		t.Errorf("%d series are left, %v; want the two of the other policy", n, err)
	}
}

func TestGaugesVanishWithTheirPods(t *testing.T) {
	registry, book, recorder := newRecorder(t)
	script(book, recorder)
	for _, key := range book.Keys() {
		book.Forget(key)
	}
	var policies []types.NamespacedName
	book.EachPolicy(func(p types.NamespacedName, _ string) { policies = append(policies, p) })
	for _, p := range policies {
		book.DropPolicy(p)
	}
	n, err := testutil.GatherAndCount(registry, "jobmesh_job_pods", "jobmesh_stuck_pods", "jobmesh_oldest_stuck_pod_timestamp_seconds", "jobmesh_policies")
	if err != nil || n != 0 {
		t.Errorf("%d series are left, %v", n, err)
	}
}

func TestNewTwiceFails(t *testing.T) {
	registry, book, _ := newRecorder(t)
	if _, err := metrics.New(registry, book); err == nil {
		t.Error("The metrics were registered twice")
	}
}
