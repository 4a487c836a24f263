// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Wrong options are told in the words of the flags; the manager is set up as the cache and the lease need it.

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/podcache"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func TestValidate(t *testing.T) {
	long := strings.Repeat("a", 64)
	cases := map[string]struct {
		change func(*Options)
		want   string // "": valid. Else the beginning of the error.
	}{
		"the defaults":              {func(*Options) {}, ""},
		"everything that may be":    {func(o *Options) { o.DefaultMode, o.MaxConcurrentQuits, o.MaxQuitsPerNode = "Enforce", 1000, 1000 }, ""},
		"disabled by default":       {func(o *Options) { o.DefaultMode = "Disabled" }, ""},
		"one at a time":             {func(o *Options) { o.MaxConcurrentQuits, o.MaxQuitsPerNode = 1, 1 }, ""},
		"some namespaces":           {func(o *Options) { o.Namespaces = []string{"a", "b-1"} }, ""},
		"no mode":                   {func(o *Options) { o.DefaultMode = "" }, `--default-mode must be Enforce, DryRun or Disabled, not ""`},
		"a mode in small letters":   {func(o *Options) { o.DefaultMode = "enforce" }, `--default-mode must be Enforce, DryRun or Disabled, not "enforce"`},
		"no quits":                  {func(o *Options) { o.MaxConcurrentQuits = 0 }, "--max-concurrent-quits must be 1 to 1000, not 0"},
		"too many quits":            {func(o *Options) { o.MaxConcurrentQuits = 1001 }, "--max-concurrent-quits must be 1 to 1000, not 1001"},
		"no quits per node":         {func(o *Options) { o.MaxQuitsPerNode = -1 }, "--max-quits-per-node must be 1 to 1000, not -1"},
		"too many quits per node":   {func(o *Options) { o.MaxQuitsPerNode = 1 << 20 }, "--max-quits-per-node must be 1 to 1000, not 1048576"},
		"no namespace":              {func(o *Options) { o.Namespaces = []string{"a", ""} }, `--namespaces must list names of namespaces, and not an empty one`},
		"servers turned off":        {func(o *Options) { o.MetricsAddress, o.ProbeAddress = "0", "0" }, ""},
		"an address with a host":    {func(o *Options) { o.MetricsAddress = "[::1]:0" }, ""},
		"no address":                {func(o *Options) { o.MetricsAddress = "nonsense" }, `--metrics-bind-address must be an address with a port from 0 to 65535, such as :8080 or 127.0.0.1:8080, or 0 for none, not "nonsense"`},
		"no port":                   {func(o *Options) { o.ProbeAddress = ":99999" }, `--health-probe-bind-address must be an address with a port from 0 to 65535`},
		"profiles":                  {func(o *Options) { o.PprofAddress = "127.0.0.1:6060" }, ""},
		"profiles, by name":         {func(o *Options) { o.PprofAddress = "localhost:0" }, ""},
		"profiles for everybody":    {func(o *Options) { o.PprofAddress = ":6060" }, `--pprof-bind-address must be an address of the loopback interface, such as 127.0.0.1:6060, or 0 for none, not ":6060"`},
		"profiles for the network":  {func(o *Options) { o.PprofAddress = "10.0.0.1:6060" }, `--pprof-bind-address must be an address of the loopback interface`},
		"profiles without a port":   {func(o *Options) { o.PprofAddress = "127.0.0.1" }, `--pprof-bind-address must be an address with a port`},
		"no name of a namespace":    {func(o *Options) { o.Namespaces = []string{"A b"} }, `--namespaces must list names of namespaces, not "A b"`},
		"too long a namespace":      {func(o *Options) { o.Namespaces = []string{long} }, `--namespaces must list names of namespaces, not "` + long},
		"a bad home for the lease":  {func(o *Options) { o.LeaderElectionNamespace = "x/y" }, `--leader-election-namespace must be the name of a namespace, not "x/y"`},
		"a good home for the lease": {func(o *Options) { o.LeaderElectionNamespace = "jobmesh-system" }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := Defaults()
			tc.change(&o)
			err := o.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("Got %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("More than one line: %q", err)
			}
			if tc.want != "" && Run(t.Context(), &rest.Config{}, o) == nil {
				t.Error("Run takes it")
			}
		})
	}
}

func TestScheme(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []runtime.Object{&corev1.Pod{}, &batchv1.Job{}, &v1alpha1.JobMeshPolicy{}, &v1alpha1.JobMeshPolicyList{}} {
		if _, _, err := scheme.ObjectKinds(o); err != nil {
			t.Error(err)
		}
	}
}

func TestManagerOptions(t *testing.T) {
	o := Defaults()
	o.LeaderElect, o.LeaderElectionNamespace = true, "home"
	got := managerOptions(runtime.NewScheme(), o)
	if !got.LeaderElection || !got.LeaderElectionReleaseOnCancel || got.LeaderElectionID != leaseName || got.LeaderElectionNamespace != "home" {
		t.Errorf("The lease: %+v", got)
	}
	if got.GracefulShutdownTimeout == nil || *got.GracefulShutdownTimeout < o.ShutdownGrace+time.Second {
		t.Errorf("The manager ends before the attempts under way: %v", got.GracefulShutdownTimeout)
	}
	if got.Cache.DefaultNamespaces != nil || !got.Cache.ReaderFailOnMissingInformer {
		t.Errorf("The cache: %+v", got.Cache)
	}
	found := false
	for object, by := range got.Cache.ByObject {
		if _, ok := object.(*corev1.Pod); ok {
			found = by.Field.String() == podcache.Selector().String() && by.Transform != nil
		}
	}
	if !found {
		t.Error("Pods are cached whole")
	}
	if o.PprofAddress != "0" || got.PprofBindAddress != "0" {
		t.Errorf("Profiles are served on %q", got.PprofBindAddress)
	}
	o.Namespaces, o.Registry = []string{"a", "b"}, prometheus.NewRegistry()
	got = managerOptions(runtime.NewScheme(), o)
	if len(got.Cache.DefaultNamespaces) != 2 || got.Controller.SkipNameValidation == nil || !*got.Controller.SkipNameValidation {
		t.Errorf("Two namespaces, a registry of its own: %+v", got)
	}
}

// TestAPolicyIsKeptWithoutWhatItsAuthorMayMakeLarge: annotations may be as large as a quarter of a megabyte, times ten thousand policies.
func TestAPolicyIsKeptWithoutWhatItsAuthorMayMakeLarge(t *testing.T) {
	p := build.MakePolicy("reap").Selects("app", "some").Obj()
	want := p.DeepCopy()
	p.Annotations, p.Labels = map[string]string{"a": strings.Repeat("x", 1<<18)}, map[string]string{"b": "c"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
	got, err := stripPolicy(p)
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Errorf("Error %v; kept (-want +got):\n%s", err, diff)
	}
	if tombstone, err := stripPolicy(toolscache.DeletedFinalStateUnknown{}); err != nil || tombstone != (toolscache.DeletedFinalStateUnknown{}) {
		t.Errorf("A tombstone became %v, error %v", tombstone, err)
	}
}
