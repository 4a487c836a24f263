// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves that a cluster starts, gives access, and leaves nothing running.

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/jobmesh/jobmesh/test/cluster"
)

// envParent makes the test binary the program that starts a cluster and is then killed.
const envParent = "JOBMESH_TEST_CLUSTER_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(envParent) != "" {
		if _, err := cluster.Start(context.Background(), cluster.Options{APIServerOnly: true}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("started")
		select {}
	}
	os.Exit(m.Run())
}

func TestCluster(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if left := children(t, os.Getpid()); len(left) > 0 {
			t.Errorf("still running after Stop: %v", left)
		}
	}()
	admin, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a service account has its own rights and no others", func(t *testing.T) {
		config, err := c.ServiceAccountConfig(t.Context(), "default", "default")
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		list := func() error {
			_, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			return err
		}
		if err := list(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"system:serviceaccount:default:default"`) {
			t.Fatalf("want the service account forbidden by name, got %v", err)
		}
		if _, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "view"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: "default"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if err = list(); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	})

	t.Run("custom resources are installed", func(t *testing.T) {
		if err := c.InstallCRDs(filepath.Join("..", "..", "config", "crd", "bases")); err != nil {
			t.Fatal(err)
		}
		resources, err := admin.Discovery().ServerResourcesForGroupVersion("jobmesh.dev/v1alpha1")
		if err != nil || len(resources.APIResources) == 0 {
			t.Errorf("want jobmesh.dev/v1alpha1 served, got %v, %v", resources, err)
		}
	})

	t.Run("a kubeconfig file gives the same access", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := c.Kubeconfig(path, c.Config()); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("want a file only for its owner, got %v, %v", info.Mode(), err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("the controllers run", func(t *testing.T) {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if _, err = admin.CoreV1().ServiceAccounts("new").Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	})
}

func TestStartFailsWithTheLogOfTheComponent(t *testing.T) {
	_, err := cluster.Start(t.Context(), cluster.Options{APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("want the API server's own complaint, got %v", err)
	}
	if left := children(t, os.Getpid()); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

func TestMissingBinariesNameTheCommand(t *testing.T) {
	t.Setenv("JOBMESH_ASSETS", t.TempDir())
	_, err := cluster.Start(t.Context(), cluster.Options{})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("want the command that builds them, got %v", err)
	}
}

func TestClusterEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cluster.Start(ctx, cluster.Options{APIServerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("still running 10 s after its context ended")
	}
	if left := children(t, os.Getpid()); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

func TestClusterDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	t.Setenv("TMPDIR", t.TempDir())
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), envParent+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	started := children(t, parent.Process.Pid)
	if len(started) != 2 {
		t.Fatalf("want etcd and kube-apiserver, got %v", started)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := 0
		for _, pid := range started {
			if state := processState(pid); state != "" && state != "Z" {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes outlived their parent", left)
		}
	}

	// The next cluster clears away what the killed program could not.
	next, err := cluster.Start(t.Context(), cluster.Options{APIServerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "jobmesh-cluster-*")); len(dirs) != 1 {
		t.Errorf("want the folder of one cluster, got %v", dirs)
	}
	if err := next.Stop(); err != nil {
		t.Error(err)
	}
}

// children lists the processes that a process started and that still run; on other systems than Linux it finds none.
func children(t *testing.T, parent int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		pid := filepath.Base(filepath.Dir(stat))
		if state, of := processStat(pid); of == fmt.Sprint(parent) && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func processState(pid string) string {
	state, _ := processStat(pid)
	return state
}

// processStat reads a process's state and parent; both are "" where it is gone.
func processStat(pid string) (state, parent string) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return "", ""
	}
	// The name in parentheses may hold anything; what follows it does not.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return fields[0], fields[1]
}
