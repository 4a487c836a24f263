// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file proves that a component that was killed comes back as it was, and that a compaction is one.

package cluster_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/jobmesh/jobmesh/test/cluster"
)

func TestAComponentComesBackWithItsData(t *testing.T) {
	// Without its cache the API server can only resume a watch where etcd can.
	c, err := cluster.Start(t.Context(), cluster.Options{APIServerOnly: true, APIServerFlags: []string{"--watch-cache=false"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	admin, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	maps := admin.CoreV1().ConfigMaps("default")
	kept, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"kube-apiserver", "etcd"} {
		if err := c.Restart(t.Context(), component); err == nil {
			t.Fatalf("%s was started twice", component)
		}
		if err := c.Kill(component); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Restart(t.Context(), component); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s was back after %v", component, time.Since(began))
		if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Errorf("After %s came back: %v", component, err)
		}
	}

	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch := func() error {
		w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: kept.ResourceVersion, TimeoutSeconds: new(int64(5))})
		if err != nil {
			return err
		}
		defer w.Stop()
		event := <-w.ResultChan()
		return apierrors.FromObject(event.Object)
	}
	if err := watch(); apierrors.IsResourceExpired(err) {
		t.Fatalf("The history is gone before the compaction: %v", err)
	}
	if revision, err := c.Compact(t.Context()); err != nil || revision == 0 {
		t.Fatalf("Compact: %d, %v", revision, err)
	}
	if err := watch(); !apierrors.IsResourceExpired(err) {
		t.Errorf("After the compaction a watch from before it got %v", err)
	}
	if err := c.Kill("kubelet"); err == nil {
		t.Error("A component that is none was killed")
	}
}
