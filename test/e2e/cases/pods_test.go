// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What else is in the pod beside app and proxy, and how the proxy came there.

package cases

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

func TestTwoApps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, second string
		want          batchv1.JobConditionType
	}{
		"BothSucceed":  {"sleep 1", "sleep 6", batchv1.JobComplete},
		"TheShortFail": {"sleep 1; exit 4", "sleep 6", batchv1.JobFailed},
		"TheLongFail":  {"sleep 1", "sleep 6; exit 5", batchv1.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := begin(t, enforce()).endsAsWithoutMesh(job(tc.first, with(app("second", tc.second))), patience); got.Condition != tc.want {
				t.Errorf("the Job ended %s, want %s", got.Condition, tc.want)
			}
		})
	}
}

// A further sidecar counts as an app container until a policy says that it is none.
func TestExtraSidecar(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sidecar   string
		wantFirst bool // the proxy ends before the sidecar
	}{
		"Counted": {"shipper", false},
		"Ignored": {ignored + "shipper", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, &v1alpha1.JobMeshPolicySpec{IgnoredContainers: []v1alpha1.ContainerName{ignored + "shipper"}})
			j := s.create(meshed(job("sleep 2", with(app(tc.sidecar, "sleep 20")))))
			s.completes(j, patience)
			pod := s.podsOf(j)[0]
			proxy, sidecar := containerOf(pod, proxyName).State.Terminated, containerOf(pod, tc.sidecar).State.Terminated
			if first := proxy.FinishedAt.Before(&sidecar.FinishedAt); first != tc.wantFirst {
				t.Errorf("istio-proxy ended at %s, the sidecar at %s", proxy.FinishedAt, sidecar.FinishedAt)
			}
		})
	}
}

// A name that merely begins like the proxy's is an app container's.
func TestNameLikeTheProxys(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	s.completes(s.create(meshed(job("sleep 1", with(app(proxyName+"-logger", "sleep 8"))))), patience)
}

// holdApplicationUntilProxyStarts: the proxy comes first, and the app only when it is ready.
func TestHoldApplicationUntilProxyStarts(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	j := s.create(meshedFirst(job("sleep 1")))
	s.completes(j, patience)
	pod := s.podsOf(j)[0]
	proxy, app := containerOf(pod, proxyName).State.Terminated, containerOf(pod, "app").State.Terminated
	if app.StartedAt.Before(&proxy.StartedAt) {
		t.Errorf("the app started at %s, before istio-proxy at %s", app.StartedAt, proxy.StartedAt)
	}
}

// An agent that would wait until no connection is open, with a stand-in Envoy that always has one.
func TestExitOnZeroActiveConnections(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	s.completes(s.create(meshed(job("sleep 2"), env("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"))), patience)
}

// The kubelet ends a native sidecar by itself, and nobody else should.
func TestNativeSidecar(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	j := s.create(meshedNatively(job("sleep 2")))
	s.completes(j, patience)
	reasons, err := s.reasons(s.podsOf(j)[0].Name)
	s.must(err)
	if len(reasons) > 0 {
		t.Errorf("the operator spoke of it: %v", reasons)
	}
}

func TestInitContainer(t *testing.T) {
	t.Parallel()
	s := begin(t, enforce())
	first := func(j *batchv1.Job) {
		j.Spec.Template.Spec.InitContainers = []corev1.Container{app("istio-init", "sleep 1")}
	}
	s.completes(s.create(meshed(job("sleep 1", first))), patience)
}

func TestStatusPort(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]*batchv1.Job{
		"Annotation":            meshed(job("sleep 2", annotated("status.sidecar.istio.io/port", "15920"))),
		"ProxyConfigAnnotation": meshed(job("sleep 2", annotated("proxy.istio.io/config", "statusPort: 15921"))),
		"ProxyConfigVariable":   meshed(job("sleep 2"), env("PROXY_CONFIG", `{"statusPort": 15922}`)),
		"AnnotationBeforeBoth": meshed(job("sleep 2", annotated("proxy.istio.io/config", "statusPort: 15921"),
			annotated("status.sidecar.istio.io/port", "15920")), env("PROXY_CONFIG", `{"statusPort": 15922}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, enforce())
			s.completes(s.create(tc), patience)
		})
	}
}
