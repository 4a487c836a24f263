// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/builders"
)

// apiServer answers GET requests with objects by path. It notes the requests.
type apiServer struct {
	objects  map[string]any
	requests []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if next := r.URL.Query().Get("continue"); next != "" {
		path += "?continue=" + next
	}
	s.requests = append(s.requests, r.Method+" "+path)
	w.Header().Set("Content-Type", "application/json")
	switch object := s.objects[path].(type) {
	case nil:
		resource := schema.GroupResource{Resource: "things"}
		s.answer(w, &apierrors.NewNotFound(resource, filepath.Base(path)).ErrStatus)
	case *apierrors.StatusError:
		s.answer(w, &object.ErrStatus)
	default:
		_ = json.NewEncoder(w).Encode(object)
	}
}

func (s *apiServer) answer(w http.ResponseWriter, status *metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// typed gives an object the kind that a server sends with it.
func typed[T runtime.Object](gv schema.GroupVersion, kind string, object T) T {
	object.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	return object
}

func forbidden(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("no rights"))
}

const (
	podsPath     = "/api/v1/namespaces/default/pods"
	jobsPath     = "/apis/batch/v1/namespaces/default/jobs"
	policiesPath = "/apis/jobmesh.dev/v1alpha1/namespaces/default/jobmeshpolicies"
)

func TestExplainFromCluster(t *testing.T) {
	finished := builders.ExitedAt(0, time.Now().Add(-time.Minute))
	stuck := func(name string) *corev1.Pod {
		return typed(corev1.SchemeGroupVersion, "Pod", builders.MakePod(name).App("app", finished).Proxy(builders.Running()).
			With(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "seed" }).Obj())
	}
	job := func(uid string, deadline int64) *batchv1.Job {
		job := builders.MakeJob("seed", stuck("a"))
		job.UID, job.Spec.ActiveDeadlineSeconds = "job-uid", &deadline
		job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"job": "seed"}}
		job.Status.StartTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
		if uid != "" {
			job.UID = "another"
		}
		return typed(batchv1.SchemeGroupVersion, "Job", job)
	}
	policies := func(policies ...*v1alpha1.JobMeshPolicy) *v1alpha1.JobMeshPolicyList {
		list := &v1alpha1.JobMeshPolicyList{Items: []v1alpha1.JobMeshPolicy{}}
		for _, p := range policies {
			list.Items = append(list.Items, *p)
		}
		return typed(v1alpha1.GroupVersion, "JobMeshPolicyList", list)
	}
	enforce, patient := builders.MakePolicy("enforce").Obj(), builders.MakePolicy("patient").Grace(3600).Obj()
	stranger := stuck("stranger")
	stranger.OwnerReferences[0].UID = "another"

	for name, tc := range map[string]struct {
		args       []string
		objects    map[string]any
		wantStatus int
		want       []string // first words of the lines that name a verdict
		wantErr    []string // in the lines on stderr
		requests   []string
	}{
		"a pod under a policy": {
			args:     []string{"pod/a"},
			objects:  map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(enforce)},
			want:     []string{"default/a: Quit (Stuck)"},
			requests: []string{"GET " + podsPath + "/a", "GET " + policiesPath},
		},
		"no policy": {
			args:    []string{"a", "--default-mode=Disabled"},
			objects: map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies()},
			want:    []string{"default/a: Ignore (PolicyDisabled)"},
		},
		"JobMesh not installed": {
			args:    []string{"a"},
			objects: map[string]any{podsPath + "/a": stuck("a")},
			want:    []string{"default/a: Observe (DryRun)"},
			wantErr: []string{"note: this cluster has no JobMeshPolicies: JobMesh is not installed here"},
		},
		"policies are forbidden": {
			args:       []string{"a"},
			objects:    map[string]any{podsPath + "/a": stuck("a"), policiesPath: forbidden("jobmeshpolicies")},
			wantStatus: exitCluster,
			wantErr:    []string{"error: JobMeshPolicies in namespace default: jobmeshpolicies is forbidden: no rights"},
		},
		"policies from a file instead": {
			args:     []string{"a", "--policy", "testdata/everywhere.yaml"},
			objects:  map[string]any{podsPath + "/a": stuck("a"), policiesPath: forbidden("jobmeshpolicies")},
			want:     []string{"default/a: Quit (Stuck)"},
			requests: []string{"GET " + podsPath + "/a"},
		},
		"a Job, page by page": {
			args: []string{"job/seed"},
			objects: map[string]any{
				jobsPath + "/seed":           job("", 600),
				podsPath:                     typed(corev1.SchemeGroupVersion, "PodList", &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "2"}, Items: []corev1.Pod{*stuck("a"), *stranger}}),
				podsPath + "?continue=2":     typed(corev1.SchemeGroupVersion, "PodList", &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "3"}, Items: []corev1.Pod{*stuck("b")}}),
				podsPath + "?continue=3":     typed(corev1.SchemeGroupVersion, "PodList", &corev1.PodList{Items: []corev1.Pod{*stuck("c")}}),
				policiesPath:                 typed(v1alpha1.GroupVersion, "JobMeshPolicyList", &v1alpha1.JobMeshPolicyList{ListMeta: metav1.ListMeta{Continue: "2"}, Items: []v1alpha1.JobMeshPolicy{*patient}}),
				policiesPath + "?continue=2": policies(builders.MakePolicy("later").Priority(1).Obj()),
			},
			want: []string{"default/a: Quit (Stuck)", "default/b: Quit (Stuck)", "default/c: Quit (Stuck)"},
		},
		"a Job without pods": {
			args:       []string{"job/seed"},
			objects:    map[string]any{jobsPath + "/seed": job("", 600), podsPath: typed(corev1.SchemeGroupVersion, "PodList", &corev1.PodList{})},
			wantStatus: exitCluster,
			wantErr:    []string{"error: job/seed in namespace default: the Job has no pods"},
		},
		"the Job's deadline cuts the grace period": {
			args:     []string{"a"},
			objects:  map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(patient), jobsPath + "/seed": job("", 140)},
			want:     []string{"default/a: Quit (Stuck)"},
			requests: []string{"GET " + podsPath + "/a", "GET " + policiesPath, "GET " + jobsPath + "/seed"},
		},
		"the Job is forbidden": {
			args:    []string{"a"},
			objects: map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(patient), jobsPath + "/seed": forbidden("jobs")},
			want:    []string{"default/a: Wait (GracePeriod)"},
			wantErr: []string{"note: a: the deadline of its Job is not known: jobs is forbidden: no rights"},
		},
		"the Job is gone": {
			args:    []string{"a"},
			objects: map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(patient)},
			want:    []string{"default/a: Wait (GracePeriod)"},
			wantErr: []string{"note: a: the deadline of its Job is not known: things \"seed\" not found"},
		},
		"another Job of its name": {
			args:    []string{"a"},
			objects: map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(patient), jobsPath + "/seed": job("another", 1)},
			want:    []string{"default/a: Wait (GracePeriod)"},
			wantErr: []string{`note: a: the deadline of its Job is not known: the Job "seed" is another than the pod's`},
		},
		"some pods are missing": {
			args:       []string{"pod", "nope", "a", "gone"},
			objects:    map[string]any{podsPath + "/a": stuck("a"), policiesPath: policies(enforce)},
			wantStatus: exitCluster,
			want:       []string{"default/a: Quit (Stuck)"},
			wantErr:    []string{`error: pod/nope in namespace default: things "nope" not found`, `error: pod/gone in namespace default: things "gone" not found`},
		},
		"an answer with escapes": {
			args:       []string{"a"},
			objects:    map[string]any{podsPath + "/a": apierrors.NewBadRequest("\x1b[2J\nlies")},
			wantStatus: exitCluster,
			wantErr:    []string{`error: pod/a in namespace default: \x1b[2J\nlies`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			api := &apiServer{objects: tc.objects}
			server := httptest.NewServer(api)
			defer server.Close()
			status, out, errOut := kubectl(t, "", append([]string{"explain", "--server", server.URL}, tc.args...)...)
			if status != tc.wantStatus {
				t.Errorf("status %d, want %d", status, tc.wantStatus)
			}
			var verdicts []string
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "default/") {
					verdicts = append(verdicts, line[:strings.Index(line, ")")+1])
				}
			}
			if diff := cmp.Diff(tc.want, verdicts); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			if want := strings.Join(tc.wantErr, "\n"); strings.TrimSpace(errOut) != want {
				t.Errorf("stderr %q, want %q", errOut, want)
			}
			if tc.requests != nil {
				if diff := cmp.Diff(tc.requests, api.requests); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A cluster that does not answer is an error of the cluster, and soon.
func TestExplainClusterIsSilent(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer server.Close()
	defer close(done)
	status, _, errOut := kubectl(t, "", "explain", "--server", server.URL, "--request-timeout=200ms", "a")
	if status != exitCluster || !strings.HasPrefix(errOut, "error: pod/a in namespace default: ") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("status %d, %q", status, errOut)
	}
}
