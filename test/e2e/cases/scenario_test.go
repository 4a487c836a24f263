// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds a scenario: a namespace with its policy, a record of every state that its pods and Jobs went through.

package cases

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/test/e2e/workload"
)

// patience bounds every wait that has no bound of its own. It says nothing of speed: the machine may be slow and busy.
const patience = 2 * time.Minute

// rootCertificate is the ConfigMap that istiod puts into every namespace.
const rootCertificate = workload.RootCertificate

type scenario struct {
	t         *testing.T
	namespace string
	// held says that proxies are left running on purpose for a while.
	held bool

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod // as last seen
	jobs map[types.UID]*batchv1.Job
	// gone are the UIDs of what was deleted.
	gone map[types.UID]bool
	// cut are the UIDs of pods that were deleted before they had finished: their proxies end as they may.
	cut map[types.UID]bool
	// wrong are moments at which a proxy had ended and an app container of its pod still ran.
	wrong []string
}

// begin makes a namespace with one policy, or none, and starts the record. The namespace goes when the test ends; what was in it
// is written down before if the test failed.
func begin(t *testing.T, spec *v1alpha1.JobMeshPolicySpec) *scenario {
	t.Helper()
	s := &scenario{t: t, pods: map[types.UID]*corev1.Pod{}, jobs: map[types.UID]*batchv1.Job{}, gone: map[types.UID]bool{}, cut: map[types.UID]bool{}}
	title := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	prefix := "e2e-" + strings.NewReplacer("/", "-", "_", "-").Replace(title)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix[:min(len(prefix), 45)] + "-"}}
	s.must(kube.Create(t.Context(), ns))
	s.namespace = ns.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if t.Failed() {
			describe(ctx, filepath.Join(artifacts, strings.ReplaceAll(t.Name(), "/", "-")), s.namespace)
		}
		if err := kube.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting the namespace: %v", err)
		}
	})
	s.record(t.Context())
	certificate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: rootCertificate}}
	kubernetes := &corev1.ConfigMap{}
	s.must(kube.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "kube-root-ca.crt"}, kubernetes))
	certificate.Data = map[string]string{"root-cert.pem": kubernetes.Data["ca.crt"]}
	if err := kube.Create(t.Context(), certificate); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if spec != nil {
		s.must(kube.Create(t.Context(), &v1alpha1.JobMeshPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "policy"}, Spec: *spec}))
	}
	s.eventually("the namespace's service account", patience, func() error {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

// enforce is the policy of most scenarios: it asks nothing but to be applied.
func enforce() *v1alpha1.JobMeshPolicySpec {
	return &v1alpha1.JobMeshPolicySpec{Mode: v1alpha1.ModeEnforce}
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) create(j *batchv1.Job) *batchv1.Job {
	s.t.Helper()
	j = j.DeepCopy()
	j.Namespace = s.namespace
	s.must(kube.Create(s.t.Context(), j))
	return j
}

// record watches the namespace until the test ends.
func (s *scenario) record(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(s.namespace))
	add := func(informer cache.SharedIndexInformer, saw func(any)) {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    saw,
			UpdateFunc: func(_, object any) { saw(object) },
			DeleteFunc: func(object any) {
				if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = tombstone.Obj
				}
				saw(object)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.gone[object.(metav1.Object).GetUID()] = true
			},
		})
		s.must(err)
	}
	add(factory.Core().V1().Pods().Informer(), func(object any) { s.sawPod(object.(*corev1.Pod)) })
	add(factory.Batch().V1().Jobs().Informer(), func(object any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		j := object.(*batchv1.Job)
		s.jobs[j.UID] = j
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

func (s *scenario) sawPod(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pods[pod.UID]
	s.pods[pod.UID] = pod
	if pod.DeletionTimestamp != nil && (before == nil || before.Status.Phase != corev1.PodSucceeded && before.Status.Phase != corev1.PodFailed) {
		s.cut[pod.UID] = true
	}
	proxy := containerOf(pod, proxyName)
	if proxy == nil || pod.DeletionTimestamp != nil || proxy.State.Running != nil || proxy.State.Waiting != nil && proxy.RestartCount == 0 {
		return
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != proxyName && c.State.Running != nil && !strings.HasPrefix(c.Name, ignored) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: istio-proxy had ended while %s ran", pod.Name, c.Name))
		}
	}
}

// ignored begins the names of containers that a scenario's policy ignores.
const ignored = "ignored-"

// podsOf returns the pods of a Job as they were last seen, also those that are gone.
func (s *scenario) podsOf(j *batchv1.Job) []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, pod := range s.pods {
		if metav1.IsControlledBy(pod, j) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}

// seen returns a Job as it was last seen.
func (s *scenario) seen(j *batchv1.Job) (job *batchv1.Job, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[j.UID], s.gone[j.UID]
}

// eventually waits for something to hold, and fails the test with its last error if it does not within the time.
func (s *scenario) eventually(what string, within time.Duration, holds func() error) {
	s.t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		select {
		case <-s.t.Context().Done():
			s.t.Fatalf("%s: %v", what, s.t.Context().Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func containerOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Status.ContainerStatuses[i]
}

// states tells of pods in a line.
func states(pods []*corev1.Pod) string {
	var out []string
	for _, pod := range pods {
		line := pod.Name + " " + string(pod.Status.Phase)
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			state := "running"
			switch {
			case c.State.Waiting != nil:
				state = c.State.Waiting.Reason
			case c.State.Terminated != nil:
				state = fmt.Sprintf("ended with %d at %s", c.State.Terminated.ExitCode, c.State.Terminated.FinishedAt.Format(time.TimeOnly))
			}
			line += fmt.Sprintf(", %s %s", c.Name, state)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
