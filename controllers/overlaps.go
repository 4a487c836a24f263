// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Which pods a policy selects that another governs: found for all policies of a namespace in one go.

package controllers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// overlapPace is how many times the time that it took must pass before the overlaps of a namespace are found again: they cost
// pods times policies, and a namespace with thousands of both must not cost more than a twentieth of a core.
const overlapPace = 20

// overlap counts the pods that a policy selects and another governs.
type overlap struct {
	pods   int
	winner string // one of the policies that govern them
}

// findOverlaps returns, by name, those policies that others outrank. All are of one namespace.
func findOverlaps(policies []v1alpha1.JobMeshPolicy, pods []corev1.Pod) map[string]overlap {
	ranked := policy.Rank(policies)
	found := map[string]overlap{}
	for i := range pods {
		if verdict.JobOf(&pods[i]) == nil {
			continue
		}
		winner := ""
		for j := range ranked {
			if !ranked[j].Selects(&pods[i]) {
				continue
			}
			if winner == "" {
				winner = ranked[j].Policy.Name
				continue
			}
			o := found[ranked[j].Policy.Name]
			o.pods++
			// The first by name: a cache lists in any order, and a status that differs is written.
			if o.winner == "" || winner < o.winner {
				o.winner = winner
			}
			found[ranked[j].Policy.Name] = o
		}
	}
	return found
}

// overlaps keeps what findOverlaps found for each namespace. The zero value is ready to use.
type overlaps struct{ perNamespace[overlapRound] }

type overlapRound struct {
	changes atomic.Uint64

	mu    sync.Mutex
	asOf  uint64
	known bool
	at    time.Time
	took  time.Duration
	found map[string]overlap
}

// find returns the overlap of one policy, and after how long to ask again where what was found is out of date and it is too early
// to look anew.
func (o *overlaps) find(ctx context.Context, cached client.Reader, clock clock.PassiveClock, p *v1alpha1.JobMeshPolicy) (overlap, time.Duration, error) {
	round := o.of(p.Namespace)
	round.mu.Lock()
	defer round.mu.Unlock()
	changes := round.changes.Load()
	if round.known && round.asOf == changes {
		return round.found[p.Name], 0, nil
	}
	began := clock.Now()
	if wait := round.at.Add(overlapPace * round.took).Sub(began); round.known && wait > 0 {
		return round.found[p.Name], wait, nil
	}
	var policies v1alpha1.JobMeshPolicyList
	if err := cached.List(ctx, &policies, client.InNamespace(p.Namespace)); err != nil {
		return overlap{}, 0, fmt.Errorf("listing the policies: %w", err)
	}
	var pods corev1.PodList
	if err := cached.List(ctx, &pods, client.InNamespace(p.Namespace)); err != nil {
		return overlap{}, 0, fmt.Errorf("listing the pods: %w", err)
	}
	round.found = findOverlaps(policies.Items, pods.Items)
	round.at = clock.Now()
	round.asOf, round.known, round.took = changes, true, round.at.Sub(began)
	return round.found[p.Name], 0, nil
}

// changed has the overlaps of a namespace found anew.
func (o *overlaps) changed(namespace string) { o.of(namespace).changes.Add(1) }
