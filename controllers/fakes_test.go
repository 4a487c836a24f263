// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What the unit tests stand on: a pod reconciler between two fake clients, the cache's and the API server's, so that a stale cache is
// possible; a quitter that does as it is told; a clock that stands still.

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/ledger"
	"github.com/jobmesh/jobmesh/internal/metrics"
	"github.com/jobmesh/jobmesh/internal/podcache"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/internal/slots"
	build "github.com/jobmesh/jobmesh/test/builders"
)

// errServer stands for any error of the API server but "not found".
var errServer = errors.New("the API server is on fire")

// ask is one call of a scriptedQuitter.
type ask struct {
	Route  quit.Route
	Target quit.Target
}

// scriptedQuitter answers with the given outcomes in turn, the last of them for ever.
type scriptedQuitter struct {
	mu       sync.Mutex
	outcomes []quit.Outcome
	asks     []ask
	// before, where set, runs within each attempt.
	before func(context.Context)
}

func (q *scriptedQuitter) PortForward(ctx context.Context, t quit.Target) quit.Result {
	return q.answer(ctx, quit.RoutePortForward, t)
}

func (q *scriptedQuitter) Exec(ctx context.Context, t quit.Target) quit.Result {
	return q.answer(ctx, quit.RouteExec, t)
}

func (q *scriptedQuitter) answer(ctx context.Context, route quit.Route, t quit.Target) quit.Result {
	if q.before != nil {
		q.before(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asks = append(q.asks, ask{route, t})
	result := quit.Result{Outcome: q.outcomes[0], Route: route}
	if len(q.outcomes) > 1 {
		q.outcomes = q.outcomes[1:]
	}
	if result.Outcome != quit.OutcomeAccepted {
		result.Err = errors.New("scripted")
	}
	return result
}

func (q *scriptedQuitter) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.asks)
}

// bench is one pod reconciler under test.
type bench struct {
	*PodReconciler
	t            *testing.T
	clock        *clocktesting.FakeClock
	cached, live client.Client
	quitter      *scriptedQuitter
	events       *events.FakeRecorder
	registry     *prometheus.Registry
	// liveReads counts the Gets past the cache, by kind. liveErr, where set, is what they answer.
	liveReads map[string]int
	liveErr   error
	// listErr, where set, is what a List past the cache answers. pages counts them. mu is for both: a resync runs beside its test.
	mu      sync.Mutex
	listErr error
	pages   int
	// perPage is how many pods the API server puts into a page at most: it may send fewer than it was asked for.
	perPage int
	woken   []string
	changed []string
}

// benchTime is shortly after the containers of built pods have ended.
var benchTime = build.FinishedAt.Add(2 * time.Second)

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t: t, clock: clocktesting.NewFakeClock(benchTime), registry: prometheus.NewRegistry(), events: events.NewFakeRecorder(1000),
		quitter: &scriptedQuitter{outcomes: []quit.Outcome{quit.OutcomeAccepted}}, liveReads: map[string]int{}, perPage: pageSize,
	}
	builder := func() *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.JobMeshPolicy{})
	}
	b.cached = &watched{builder().WithObjects(copies(objects)...).Build(), b}
	b.live = builder().WithObjects(copies(objects)...).WithInterceptorFuncs(interceptor.Funcs{Get: b.liveGet, List: b.liveList}).Build()
	book := ledger.New(func(p client.ObjectKey) { b.changed = append(b.changed, p.String()) })
	recorder, err := metrics.New(b.registry, book)
	if err != nil {
		t.Fatal(err)
	}
	b.PodReconciler = &PodReconciler{
		Cached: b.cached, Live: b.live, Quitter: b.quitter, Events: b.events, Ledger: book, Metrics: recorder, Clock: b.clock,
		Defaults: policy.Defaults{Mode: v1alpha1.ModeDryRun}, MaxQuits: 64, MaxQuitsPerNode: 8, ShutdownGrace: 3 * time.Second,
	}
	b.places(64, 8)
	return b
}

// watched tells the reconciler of changed policies, as the watch does.
type watched struct {
	client.WithWatch
	b *bench
}

func (w *watched) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return w.tell(o, w.WithWatch.Create(ctx, o, opts...))
}

func (w *watched) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return w.tell(o, w.WithWatch.Update(ctx, o, opts...))
}

func (w *watched) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return w.tell(o, w.WithWatch.Delete(ctx, o, opts...))
}

func (w *watched) tell(o client.Object, err error) error {
	if _, ok := o.(*v1alpha1.JobMeshPolicy); ok {
		w.b.rankings.changed(o.GetNamespace())
	}
	return err
}

// enforcing is a bench with a policy that reaps everything in the namespace default.
func enforcing(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	return newBench(t, append(objects, build.MakePolicy("reap").Obj())...)
}

func copies(objects []client.Object) []client.Object {
	c := make([]client.Object, len(objects))
	for i := range objects {
		c[i] = objects[i].DeepCopyObject().(client.Object)
	}
	return c
}

func (b *bench) places(total, perNode int) {
	b.slots = slots.New(total, perNode, func(r reconcile.Request) { b.woken = append(b.woken, r.Name) })
}

func (b *bench) liveGet(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	b.liveReads[fmt.Sprintf("%T", o)]++
	if b.liveErr != nil {
		return b.liveErr
	}
	return c.Get(ctx, key, o, opts...)
}

// liveList answers as an API server does, page by page; the fake client knows neither pages nor the selector's "!=".
func (b *bench) liveList(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	b.mu.Lock()
	b.pages++
	err := b.listErr
	b.mu.Unlock()
	if err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Limit == 0 || o.FieldSelector == nil || o.FieldSelector.String() != podcache.Selector().String() {
		return fmt.Errorf("a list of pods must be bounded and selected as the cache is, not %+v", o)
	}
	var all corev1.PodList
	if err := c.List(ctx, &all, client.InNamespace(o.Namespace)); err != nil {
		return err
	}
	items := slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return !o.FieldSelector.Matches(fields.Set{"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase)})
	})
	first := 0
	if o.Continue != "" {
		first, _ = strconv.Atoi(o.Continue)
	}
	last := min(first+int(o.Limit), first+b.perPage, len(items))
	// As a decoder does: what the answer does not mention stays as it was.
	page := list.(*corev1.PodList)
	page.Items = append(page.Items, items[first:last]...)
	if last < len(items) {
		page.Continue = strconv.Itoa(last)
	}
	return nil
}

// lists makes Lists past the cache answer with err, and returns how many pages were asked for since the last call.
func (b *bench) lists(err error) (pages int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pages, b.pages, b.listErr = b.pages, 0, err
	return pages
}

// reconcile looks at a pod of the namespace default.
func (b *bench) reconcile(name string) reconcile.Result {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), requestFor(name))
	if err != nil {
		b.t.Fatalf("Reconcile: %v", err)
	}
	return result
}

// reconcileError looks at the pod named pod, and wants an error.
func (b *bench) reconcileError() error {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), requestFor("pod"))
	if err == nil {
		b.t.Fatalf("Reconcile returned no error but %+v", result)
	}
	return err
}

// see puts a pod's new state into the cache, the API server, or both. A pod that the selector does not match leaves the cache.
func (b *bench) see(pod *corev1.Pod, where ...client.Client) {
	b.t.Helper()
	for _, c := range where {
		old := &corev1.Pod{}
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(pod), old); err == nil || b.liveErr != nil {
			if err := c.Delete(context.Background(), old); err != nil {
				b.t.Fatal(err)
			}
		}
		if c == b.cached && finished(pod) {
			continue
		}
		if err := c.Create(context.Background(), pod.DeepCopy()); err != nil {
			b.t.Fatal(err)
		}
		if pod.DeletionTimestamp != nil { // which takes a finalizer
			b.lose(pod, c)
		}
	}
	clear(b.liveReads)
}

// lose removes a pod from the cache, the API server, or both.
func (b *bench) lose(pod *corev1.Pod, where ...client.Client) {
	b.t.Helper()
	for _, c := range where {
		if err := c.Delete(context.Background(), pod.DeepCopy()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// recall returns what is known of the pod named pod.
func (b *bench) recall() ledger.Record {
	known, _ := b.Ledger.Peek(client.ObjectKey{Namespace: "default", Name: "pod"})
	return known
}

// heard returns the events since it was last called.
func (b *bench) heard() []string {
	var heard []string
	for {
		select {
		case e := <-b.events.Events:
			heard = append(heard, e)
		default:
			return heard
		}
	}
}

// metric sums the series of a metric whose labels hold all the given values.
func (b *bench) metric(name string, values ...string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(labels, v) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func (b *bench) wantMetric(want float64, name string, values ...string) {
	b.t.Helper()
	if got := b.metric(name, values...); got != want {
		b.t.Errorf("%s{%s} is %v, want %v", name, strings.Join(values, ","), got, want)
	}
}

func (b *bench) wantAsks(want int) {
	b.t.Helper()
	if got := b.quitter.count(); got != want {
		b.t.Errorf("Got %d attempts, want %d", got, want)
	}
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}}
}

// stuck is a pod whose app has ended while its proxy runs.
func stuck(name string) *build.Pod {
	return build.MakePod(name).App("app", build.Exited(0)).Proxy(build.Running())
}

// endedPod is what becomes of such a pod: its proxy has exited.
func endedPod(name string, phase corev1.PodPhase) *build.Pod {
	return build.MakePod(name).App("app", build.Exited(0)).Proxy(build.Exited(0)).Phase(phase)
}

// runOf makes the proxy's run another one.
func runOf(id string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; s.Name == "istio-proxy" {
				s.ContainerID = "containerd://" + id
			}
		}
	}
}

func reconcileOf(pod *corev1.Pod) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
}

// wokenBy returns the keys that f puts into the queue of a wakeup sooner or later; want is how many to wait for.
func wokenBy(t *testing.T, w *wakeup, want int, f func()) []string {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := w.source().Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	f()
	for deadline := time.Now().Add(10 * time.Second); queue.Len() < want && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	var woken []string
	for range queue.Len() {
		request, _ := queue.Get()
		woken = append(woken, request.String())
	}
	slices.Sort(woken)
	return woken
}
