// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the ledger knows per policy: counts of pods, and reaps that the policy's status does not show yet.

package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/verdict"
)

// Counts are the unfinished pods under one policy.
type Counts struct{ Selected, Stuck, Blocked int32 }

// Reaps are pods reaped under one policy since its status last told.
type Reaps struct {
	Pods int64
	Last time.Time
}

// Count returns how many pods are under a policy.
func (l *Ledger) Count(policy types.NamespacedName) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[policy]
}

// count adds a pod to the counts of its policy, or takes it away.
func (l *Ledger) count(namespace string, r *Record, by int32) {
	if r.Policy == "" {
		return
	}
	policy := types.NamespacedName{Namespace: namespace, Name: r.Policy}
	c := l.counts[policy]
	c.Selected += by
	if r.Stuck {
		c.Stuck += by
	}
	if r.Verdict == verdict.Blocked {
		c.Blocked += by
	}
	if c == (Counts{}) {
		delete(l.counts, policy)
		return
	}
	l.counts[policy] = c
}

// AddReap notes a reaped pod for the policy's status.
func (l *Ledger) AddReap(policy types.NamespacedName, at time.Time) {
	if policy.Name == "" {
		return
	}
	l.addReaps(policy, Reaps{Pods: 1, Last: at})
	l.changed(policy)
}

// TakeReaps takes the reaps that the policy's status is to show. Where it cannot be written, ReturnReaps puts them back.
func (l *Ledger) TakeReaps(policy types.NamespacedName) Reaps {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reaps[policy]
	delete(l.reaps, policy)
	return r
}

// ReturnReaps puts back what TakeReaps took.
func (l *Ledger) ReturnReaps(policy types.NamespacedName, r Reaps) {
	if r.Pods > 0 {
		l.addReaps(policy, r)
	}
}

func (l *Ledger) addReaps(policy types.NamespacedName, more Reaps) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.reaps[policy]
	r.Pods += more.Pods
	if more.Last.After(r.Last) {
		r.Last = more.Last
	}
	l.reaps[policy] = r
}

// SetPolicy notes that a policy exists, with its mode.
func (l *Ledger) SetPolicy(policy types.NamespacedName, mode string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.policies[policy.Namespace] == nil {
		l.policies[policy.Namespace] = map[string]string{}
	}
	l.policies[policy.Namespace][policy.Name] = mode
}

// DropPolicy forgets a policy that is gone.
func (l *Ledger) DropPolicy(policy types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.policies[policy.Namespace], policy.Name)
	if len(l.policies[policy.Namespace]) == 0 {
		delete(l.policies, policy.Namespace)
	}
	delete(l.reaps, policy)
}

// PoliciesIn returns the policies of a namespace.
func (l *Ledger) PoliciesIn(namespace string) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []types.NamespacedName
	for name := range l.policies[namespace] {
		found = append(found, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return found
}

// EachPolicy calls visit for every policy. visit must be quick, and must not call the ledger.
func (l *Ledger) EachPolicy(visit func(policy types.NamespacedName, mode string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for namespace, policies := range l.policies {
		for name, mode := range policies {
			visit(types.NamespacedName{Namespace: namespace, Name: name}, mode)
		}
	}
}
