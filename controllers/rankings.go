// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The policies of each namespace, ready for decisions. Reading and sorting them anew for each decision would let a namespace with
// thousands of policies slow down all others.

package controllers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
)

// rankings keeps what policy.Rank makes of each namespace's policies, until one of them changes. The zero value is ready to use.
type rankings struct{ perNamespace[ranking] }

type ranking struct {
	// changes counts what has changed. What was read is as old as the count before the read.
	changes atomic.Uint64

	mu     sync.Mutex // also while the policies are read: once is enough, however many wait for it
	asOf   uint64
	known  bool
	ranked []policy.Ranked
}

// read returns the policies of a namespace in the order in which they govern. They are shared: nobody may change them.
func (r *rankings) read(ctx context.Context, cached client.Reader, namespace string) ([]policy.Ranked, error) {
	n := r.of(namespace)
	n.mu.Lock()
	defer n.mu.Unlock()
	changes := n.changes.Load()
	if n.known && n.asOf == changes {
		return n.ranked, nil
	}
	var policies v1alpha1.JobMeshPolicyList
	if err := cached.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	n.ranked, n.asOf, n.known = policy.Rank(policies.Items), changes, true
	return n.ranked, nil
}

// changed has the policies of a namespace read again when they are next needed. It must be called after the cache has seen the
// change, and before the pods under it are looked at.
func (r *rankings) changed(namespace string) { r.of(namespace).changes.Add(1) }
