// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the ledger remembers, whom it tells, and that many may use it at once.

package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/verdict"
	build "github.com/jobmesh/jobmesh/test/builders"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func TestRecall(t *testing.T) {
	l := ledger.New(func(types.NamespacedName) {})
	pod := build.MakePod("pod").Obj()
	other := build.MakePod("pod").With(func(p *corev1.Pod) { p.UID = "other" }).Obj()
	if _, ok := l.Recall(pod); ok {
		t.Error("An empty ledger knows the pod")
	}
	if before := l.Update(pod, ledger.Record{Policy: "p", UID: "nonsense"}); before.UID != "" {
		t.Errorf("Before the first update: %+v", before)
	}
	got, ok := l.Recall(pod)
	if want := (ledger.Record{Policy: "p", UID: pod.UID}); !ok || !cmp.Equal(got, want) {
		t.Errorf("Got %+v, %v, want %+v", got, ok, want)
	}
	got.Policy = "changed"
	if again, _ := l.Recall(pod); again.Policy != "p" {
		t.Error("What Recall returned is no copy")
	}
	if _, ok := l.Recall(other); ok {
		t.Error("A pod of the same name but another UID is taken for it")
	}
	if peeked, ok := l.Peek(key("pod")); !ok || peeked.UID != pod.UID {
		t.Errorf("Peek: %+v, %v", peeked, ok)
	}
	if before := l.Update(other, ledger.Record{}); before.UID != "" {
		t.Errorf("Before the first update of another pod: %+v", before)
	}
	if before := l.Update(other, ledger.Record{Reaped: true}); before.UID != "other" {
		t.Errorf("Before its second: %+v", before)
	}
	if diff := cmp.Diff([]types.NamespacedName{key("pod")}, l.Keys()); diff != "" {
		t.Errorf("Keys (-want +got):\n%s", diff)
	}
	l.Forget(key("pod"))
	l.Forget(key("pod"))
	if _, ok := l.Peek(key("pod")); ok || len(l.Keys()) > 0 {
		t.Error("Forgotten, but known")
	}
}

// TestWhoIsTold checks which policies are told of a change from one record to the next.
func TestWhoIsTold(t *testing.T) {
	waiting := ledger.Record{Policy: "a", Verdict: verdict.Wait, Reason: verdict.AppRunning}
	with := func(change func(*ledger.Record)) *ledger.Record { r := waiting; change(&r); return &r }
	cases := map[string]struct {
		from, to *ledger.Record // nil: none
		otherUID bool
		want     []string
	}{
		"a new pod":             {nil, &waiting, false, []string{"a"}},
		"a new pod without one": {nil, &ledger.Record{}, false, nil},
		"nothing":               {&waiting, &waiting, false, nil},
		"the reason alone":      {&waiting, with(func(r *ledger.Record) { r.Reason = verdict.AppWaiting }), false, nil},
		"the verdict":           {&waiting, with(func(r *ledger.Record) { r.Verdict = verdict.Blocked }), false, []string{"a"}},
		"stuck":                 {&waiting, with(func(r *ledger.Record) { r.Stuck = true }), false, []string{"a"}},
		"another policy":        {&waiting, with(func(r *ledger.Record) { r.Policy = "b" }), false, []string{"a", "b"}},
		"no policy any more":    {&waiting, with(func(r *ledger.Record) { r.Policy = "" }), false, []string{"a"}},
		"another pod":           {&waiting, with(func(r *ledger.Record) { r.Policy = "b" }), true, []string{"a", "b"}},
		"another pod of it":     {&waiting, &waiting, true, []string{"a"}},
		"forgotten":             {&waiting, nil, false, []string{"a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var told []string
			var l *ledger.Ledger
			l = ledger.New(func(p types.NamespacedName) {
				l.Count(p) // outside any lock
				told = append(told, p.Name)
			})
			pod := build.MakePod("pod").Obj()
			if tc.from != nil {
				l.Update(pod, *tc.from)
			}
			told = nil
			if tc.otherUID {
				pod.UID = "other"
			}
			if tc.to != nil {
				l.Update(pod, *tc.to)
			} else {
				l.Forget(key("pod"))
			}
			slices.Sort(told)
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("Told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCount(t *testing.T) {
	l := ledger.New(func(types.NamespacedName) {})
	add := func(pod *build.Pod, r ledger.Record) { l.Update(pod.Obj(), r) }
	add(build.MakePod("busy"), ledger.Record{Policy: "p", Verdict: verdict.Wait})
	add(build.MakePod("stuck"), ledger.Record{Policy: "p", Verdict: verdict.Quit, Stuck: true})
	add(build.MakePod("blocked"), ledger.Record{Policy: "p", Verdict: verdict.Blocked, Stuck: true})
	add(build.MakePod("other"), ledger.Record{Policy: "q", Verdict: verdict.Blocked, Stuck: true})
	add(build.MakePod("none"), ledger.Record{Verdict: verdict.Observe, Stuck: true})
	add(build.MakePod("far").Namespace("far"), ledger.Record{Policy: "p", Verdict: verdict.Wait})
	if diff := cmp.Diff(ledger.Counts{Selected: 3, Stuck: 2, Blocked: 1}, l.Count(key("p"))); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
	l.Forget(key("stuck"))
	if diff := cmp.Diff(ledger.Counts{Selected: 2, Stuck: 1, Blocked: 1}, l.Count(key("p"))); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
	if got := l.Count(key("nobody")); got != (ledger.Counts{}) {
		t.Errorf("Nobody's counts: %+v", got)
	}
}

func TestReaps(t *testing.T) {
	var told []string
	l := ledger.New(func(p types.NamespacedName) { told = append(told, p.Name) })
	at := func(s int) time.Time { return build.Start.Add(time.Duration(s) * time.Second) }
	l.AddReap(key("p"), at(2))
	l.AddReap(key("p"), at(1)) // told late
	l.AddReap(key("q"), at(9))
	l.AddReap(key(""), at(9)) // governed by no policy
	if diff := cmp.Diff([]string{"p", "p", "q"}, told); diff != "" {
		t.Errorf("Told (-want +got):\n%s", diff)
	}
	taken := l.TakeReaps(key("p"))
	if want := (ledger.Reaps{Pods: 2, Last: at(2)}); taken != want {
		t.Errorf("Took %+v, want %+v", taken, want)
	}
	if again := l.TakeReaps(key("p")); again.Pods != 0 {
		t.Errorf("Taken twice: %+v", again)
	}
	l.AddReap(key("p"), at(5))
	l.ReturnReaps(key("p"), taken)
	l.ReturnReaps(key("none"), ledger.Reaps{})
	if got, want := l.TakeReaps(key("p")), (ledger.Reaps{Pods: 3, Last: at(5)}); got != want {
		t.Errorf("Took %+v, want %+v", got, want)
	}
	l.SetPolicy(key("q"), "Enforce")
	l.DropPolicy(key("q"))
	if got := l.TakeReaps(key("q")); got.Pods != 0 {
		t.Errorf("A policy that is gone is owed %+v", got)
	}
}

func TestPolicies(t *testing.T) {
	l := ledger.New(func(types.NamespacedName) {})
	l.SetPolicy(key("p"), "Enforce")
	l.SetPolicy(key("q"), "DryRun")
	l.SetPolicy(key("p"), "Disabled")
	got := map[string]string{}
	l.EachPolicy(func(p types.NamespacedName, mode string) { got[p.Name] = mode })
	if diff := cmp.Diff(map[string]string{"p": "Disabled", "q": "DryRun"}, got); diff != "" {
		t.Errorf("Policies (-want +got):\n%s", diff)
	}
}

// TestManyAtOnce has many pods come, change, be reaped and go at once. Every reap must be taken once.
func TestManyAtOnce(t *testing.T) {
	var l *ledger.Ledger
	l = ledger.New(func(p types.NamespacedName) { l.Count(p) })
	const workers, rounds = 16, 200
	var all sync.WaitGroup
	var taken int64
	stop := make(chan struct{})
	var taker sync.WaitGroup
	taker.Go(func() {
		for i := 0; ; i++ {
			if r := l.TakeReaps(key("p")); i%3 == 0 {
				l.ReturnReaps(key("p"), r)
			} else {
				taken += r.Pods
			}
			l.Each(func(types.NamespacedName, *ledger.Record) {})
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for w := range workers {
		all.Go(func() {
			pod := build.MakePod(fmt.Sprintf("pod-%d", w%4)).Obj()
			for i := range rounds {
				l.Update(pod, ledger.Record{Policy: "p", Stuck: i%2 == 0})
				l.Recall(pod)
				l.AddReap(key("p"), build.Start.Add(time.Duration(i)))
				l.SetPolicy(key(fmt.Sprint(w)), "Enforce")
				if i%5 == 0 {
					l.Forget(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
				}
			}
		})
	}
	all.Wait()
	close(stop)
	taker.Wait()
	taken += l.TakeReaps(key("p")).Pods
	if taken != workers*rounds {
		t.Errorf("%d reaps taken, want %d", taken, workers*rounds)
	}
}
