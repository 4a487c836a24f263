// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What befalls the operator and the node. These tests do not run in parallel with others, whose operator and node they share.

package cases

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

// kills counts the operator's processes that tests killed: it may restart so often.
var kills int32

// The operator runs as it ships: two replicas of which one leads, unprivileged in every respect, where Pod Security is enforced.
func TestOperatorAsShipped(t *testing.T) {
	pods := operatorPods(t)
	if len(pods) != 2 {
		t.Errorf("%d replicas, want 2", len(pods))
	}
	leader(t)
	for _, pod := range pods {
		metrics, err := clientset.CoreV1().RESTClient().Get().Namespace(operatorNamespace).Resource("pods").
			Name(pod.Name + ":8080").SubResource("proxy").Suffix("metrics").DoRaw(t.Context())
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(metrics), "jobmesh_build_info") {
			t.Errorf("%s serves no jobmesh_build_info", pod.Name)
		}
	}
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "bare"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{app("app", "true")}},
	}
	if err := kube.Create(t.Context(), bare); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that violates Pod Security: %v, want it forbidden", err)
	}
	if os.Getenv("E2E_KUBELET_PID") == "" {
		return
	}
	for _, pod := range pods {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", processOf(t, pod.UID)))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), want+"\n") {
				t.Errorf("the operator's process is not %q:\n%s", want, status)
			}
		}
	}
}

// A disabled status port leaves no road by port-forward. With the exec fallback there is one.
func TestExecFallback(t *testing.T) {
	if os.Getenv("IMG") == "" {
		t.Skip("this installs the operator anew, which needs IMG")
	}
	s := begin(t, &v1alpha1.JobMeshPolicySpec{Quit: &v1alpha1.Quit{Fallback: v1alpha1.QuitFallbackExec}})
	// The injector leaves out the probes where there is no status port.
	j := s.create(meshed(job("sleep 1", annotated("status.sidecar.istio.io/port", "0")), func(c *corev1.Container) {
		c.StartupProbe, c.ReadinessProbe = nil, nil
	}))
	s.event(s.stuck(j).Name, "StatusPortDisabled")
	s.untouched(j)
	s.held = true

	restore := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := install(ctx); err != nil {
			t.Errorf("installing the operator without the fallback: %v", err)
		}
	}
	defer restore()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.must(install(ctx, "exec-fallback"))
	s.completes(j, patience)
}

// An operator that dies after it asked knows nothing of it when it comes back. The proxy is gone by then, or goes.
func TestOperatorKilled(t *testing.T) {
	if os.Getenv("E2E_KUBELET_PID") == "" {
		t.Skip("this kills a process on the node, which is not this machine")
	}
	s := begin(t, enforce())
	pod := leader(t)
	logs, err := clientset.CoreV1().Pods(operatorNamespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logs.Close() }()
	// Longer than a lease lasts, so that the next leader finds the proxy still there.
	j := s.create(meshed(job("sleep 2"), lingering("30")))
	for lines := bufio.NewScanner(logs); ; {
		if !lines.Scan() {
			t.Fatalf("the operator's log ended before it asked the proxy: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), "Asked the proxy to quit") && strings.Contains(lines.Text(), s.namespace) {
			break
		}
	}
	kills++
	s.must(syscall.Kill(processOf(t, pod.UID), syscall.SIGKILL))
	s.stuck(j)
	s.held = true
	s.completes(j, patience)

	// Whoever leads now does the work.
	s.held = false
	s.completes(s.create(meshed(job("sleep 1", named("after")))), patience)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.must(awaitOperator(ctx))
}

// While a kubelet does not answer, attempts fail and states are old. When it is back, everything that is stuck goes.
func TestKubeletStopped(t *testing.T) {
	kubelet, err := strconv.Atoi(os.Getenv("E2E_KUBELET_PID"))
	if err != nil {
		t.Skip("this stops the kubelet, which is not on this machine")
	}
	s := begin(t, &v1alpha1.JobMeshPolicySpec{Mode: v1alpha1.ModeDryRun})
	before := s.create(meshed(job("sleep 1", named("stuck-before"))))
	during := s.create(meshed(job("sleep 15", named("finishes-during"))))
	s.stuck(before)
	s.running(during)

	s.held = true
	resume := func() error { return syscall.Kill(kubelet, syscall.SIGCONT) }
	defer func() { _ = resume() }()
	s.must(syscall.Kill(kubelet, syscall.SIGSTOP))
	s.setMode(v1alpha1.ModeEnforce)
	time.Sleep(30 * time.Second)
	s.must(resume())
	s.completes(before, patience)
	s.completes(during, patience)
}

func operatorPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := clientset.CoreV1().Pods(operatorNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: operatorLabels})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// leader waits until an operator's pod holds the lease, and returns it.
func leader(t *testing.T) corev1.Pod {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		leases, err := clientset.CoordinationV1().Leases(operatorNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases.Items {
			for _, pod := range operatorPods(t) {
				if holder := lease.Spec.HolderIdentity; holder != nil && strings.HasPrefix(*holder, pod.Name+"_") {
					return pod
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no replica of the operator holds the lease")
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// processOf finds the operator's process in a pod by its cgroup.
func processOf(t *testing.T, pod any) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		cgroup, _ := os.ReadFile(file)
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if strings.Contains(string(cgroup), fmt.Sprint(pod)) && strings.HasPrefix(string(command), "/manager") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no process of the pod %v", pod)
	return 0
}
