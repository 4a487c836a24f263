// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger remembers, in memory only, what the operator last thought of each pod and what it tried. After a restart it is
// rebuilt from nothing: the pods themselves are the truth.
package ledger

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/verdict"
)

// Record is what is known of one pod.
type Record struct {
	// UID tells the pod from another of the same name.
	UID types.UID
	// Policy is the name of the governing policy; "" where none governs.
	Policy    string
	Injection istio.Injection
	Verdict   verdict.Verdict
	Reason    verdict.Reason
	// Stuck is true where the pod counts as stuck.
	Stuck bool
	// AppFinishedAt is when the last app container finished; zero where unknown.
	AppFinishedAt time.Time
	// ProxyRun tells one run of the proxy from the next: its container ID.
	ProxyRun string
	// History of the attempts at this run.
	History verdict.History
	// Reaped is true once the quit was confirmed.
	Reaped bool
	// JobDeadline of the pod's Job; nil until it was looked up.
	JobDeadline *time.Time
}

// Ledger holds the records of all unfinished pods of Jobs, and what the policies are owed. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	pods     map[types.NamespacedName]*Record
	counts   map[types.NamespacedName]Counts // by policy; kept with pods, because thousands of policies ask for theirs
	reaps    map[types.NamespacedName]Reaps
	policies map[string]map[string]string // by namespace: names and modes
	changed  func(policy types.NamespacedName)
}

// New makes an empty ledger. changed is called, outside any lock, with each policy whose counts may have changed.
func New(changed func(policy types.NamespacedName)) *Ledger {
	return &Ledger{
		pods:     map[types.NamespacedName]*Record{},
		counts:   map[types.NamespacedName]Counts{},
		reaps:    map[types.NamespacedName]Reaps{},
		policies: map[string]map[string]string{},
		changed:  changed,
	}
}

// Recall returns a copy of what is known of the pod, and whether anything is. A pod of the same name but another UID is another pod.
func (l *Ledger) Recall(pod *corev1.Pod) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.pods[keyOf(pod)]
	if r == nil || r.UID != pod.UID {
		return Record{}, false
	}
	return *r, true
}

// Update stores what is now known of the pod, and returns what was known before (the zero Record for a new pod).
func (l *Ledger) Update(pod *corev1.Pod, r Record) (before Record) {
	key := keyOf(pod)
	r.UID = pod.UID
	l.mu.Lock()
	var replaced string // the policy that loses the pod
	if old := l.pods[key]; old != nil {
		replaced = old.Policy
		if old.UID == pod.UID {
			before = *old
		}
	}
	l.put(key, &r)
	l.mu.Unlock()
	if replaced != r.Policy {
		l.notify(key.Namespace, replaced)
	}
	if before.Policy != r.Policy || before.Verdict != r.Verdict || before.Stuck != r.Stuck || before.UID == "" {
		l.notify(key.Namespace, r.Policy)
	}
	return before
}

// Forget drops a pod.
func (l *Ledger) Forget(key types.NamespacedName) {
	l.mu.Lock()
	r := l.pods[key]
	l.put(key, nil)
	l.mu.Unlock()
	if r != nil {
		l.notify(key.Namespace, r.Policy)
	}
}

// Peek returns what is known of the pod of that name, whichever it was.
func (l *Ledger) Peek(key types.NamespacedName) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.pods[key]
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

// Keys returns the names of all pods in the ledger.
func (l *Ledger) Keys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(l.pods))
	for key := range l.pods {
		keys = append(keys, key)
	}
	return keys
}

// Each calls visit for every pod. visit must be quick, and must not call the ledger.
func (l *Ledger) Each(visit func(types.NamespacedName, *Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, r := range l.pods {
		visit(key, r)
	}
}

// put replaces what is known of a pod; nil forgets it.
func (l *Ledger) put(key types.NamespacedName, r *Record) {
	if old := l.pods[key]; old != nil {
		l.count(key.Namespace, old, -1)
	}
	if r == nil {
		delete(l.pods, key)
		return
	}
	l.pods[key] = r
	l.count(key.Namespace, r, 1)
}

func (l *Ledger) notify(namespace, policy string) {
	if policy != "" {
		l.changed(types.NamespacedName{Namespace: namespace, Name: policy})
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
