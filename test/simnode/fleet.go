// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode simulates nodes of a real cluster in one process: they register, the real scheduler binds Pods to
// them, the Pods run as their annotations script them, and the real API server reaches them for port-forward and exec.
// A classic istio-proxy is a double that listens on its Pod's own loopback address and behaves as pilot-agent does.
//
// virtual-kubelet registers the nodes and renews their leases. The rest is this package's: virtual-kubelet's Pod
// controller works through goroutines and informers of its own per node and knows nothing of restarts, init containers
// or sidecars, which are what matters here; and its HTTP handlers are an old copy of those that the container runtimes
// use, which k8s.io/cri-streaming publishes.
//
// This file holds the fleet of nodes: options, start, stop and the watch over Pods.
package simnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// DefaultRun is how long an attempt of a container without a script runs.
	DefaultRun = 100 * time.Millisecond
	// DefaultDrain is pilot-agent's terminationDrainDuration.
	DefaultDrain = 5 * time.Second
	// maxRestartBackOff bounds the doubling of Options.RestartBackOff.
	maxRestartBackOff = 5 * time.Second
)

// silent swallows what net/http would log about doubles that misbehave on purpose.
var silent = log.New(io.Discard, "", 0)

// Options say what a Fleet is. The zero value is one node.
type Options struct {
	// Nodes is the number of nodes; 0 is one. They are called NamePrefix-0, NamePrefix-1, …
	Nodes int
	// NamePrefix begins the nodes' names; "" is "sim".
	NamePrefix string
	// PodsPerNode is the capacity for Pods that each node claims; 0 is 5000.
	PodsPerNode int64
	// RelistDelay is how long a change in a Pod takes to reach its status; changes in between are one write. 0 is
	// 100 ms. Real kubelets take about a second.
	RelistDelay time.Duration
	// RestartBackOff is how long a container waits for its first restart, doubled at each further one up to 5 s; 0 is
	// 300 ms. Real kubelets wait 10 s, doubled up to 5 minutes.
	RestartBackOff time.Duration
	// StatusWriters is the number of status writes at once, over all nodes; 0 is 8.
	StatusWriters int
	// Ended is told of a Pod once the API server has taken the status with which its last app container has finished for good;
	// nil tells nobody. It must not block.
	Ended func(namespace, pod, node string)
	// Log receives what goes wrong; the zero value drops it.
	Log logr.Logger
}

// Fleet is a set of simulated nodes with their Pods.
type Fleet struct {
	options Options
	log     logr.Logger
	client  kubernetes.Interface
	network *network

	kubeletVersion string // the API server's

	counters counters
	gates    gates
	queue    workqueue.TypedRateLimitingInterface[*pod]
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
	nodes    map[string]*Node
	names    []string
	stopOnce sync.Once

	mu   sync.Mutex
	pods map[types.UID]*pod
	keys map[string]*pod // by namespace/name: the newest Pod of that name
}

// Start registers the nodes and waits until the API server has them. The fleet runs until Stop or the end of ctx.
func Start(ctx context.Context, config *rest.Config, options Options) (*Fleet, error) {
	options = withDefaults(options)
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "simnode"
	// Decoding ten thousand Pods' updates from JSON would cost more than all the rest.
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	net, err := newNetwork()
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		options: options, log: options.Log, client: client, network: net,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[*pod](50*time.Millisecond, 5*time.Second)),
		nodes: map[string]*Node{}, pods: map[types.UID]*pod{}, keys: map[string]*pod{},
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	if err := f.start(); err != nil {
		f.Stop()
		return nil, fmt.Errorf("starting the simulated nodes: %w", err)
	}
	context.AfterFunc(ctx, f.Stop)
	return f, nil
}

func withDefaults(o Options) Options {
	o.Nodes = max(o.Nodes, 1)
	if o.NamePrefix == "" {
		o.NamePrefix = "sim"
	}
	if o.PodsPerNode == 0 {
		o.PodsPerNode = 5000
	}
	if o.RelistDelay == 0 {
		o.RelistDelay = 100 * time.Millisecond
	}
	if o.RestartBackOff == 0 {
		o.RestartBackOff = 300 * time.Millisecond
	}
	if o.StatusWriters == 0 {
		o.StatusWriters = 8
	}
	return o
}

func (f *Fleet) start() error {
	certificate, err := newCertificate()
	if err != nil {
		return err
	}
	version, err := f.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	f.kubeletVersion = version.GitVersion
	for i := range f.options.Nodes {
		n, err := f.newNode(fmt.Sprintf("%s-%d", f.options.NamePrefix, i), certificate)
		if err != nil {
			return err
		}
		f.nodes[n.name] = n
		f.names = append(f.names, n.name)
	}
	for range f.options.StatusWriters {
		f.running.Go(f.writeStatuses)
	}
	if err := f.watch(); err != nil {
		return err
	}
	var failures []error
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, n := range f.nodes {
		all.Go(func() {
			if err := n.register(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// watch follows the Pods of all nodes by one watch.
func (f *Fleet) watch() error {
	source := cache.NewListWatchFromClient(f.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		fields.OneTermNotEqualSelector("spec.nodeName", ""))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(source, f.client),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { f.observe(object.(*corev1.Pod)) },
			UpdateFunc: func(_, object any) { f.observe(object.(*corev1.Pod)) },
			DeleteFunc: func(object any) {
				if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = unknown.Obj
				}
				f.forget(object.(*corev1.Pod))
			},
		},
		Transform: func(object any) (any, error) {
			if p, ok := object.(*corev1.Pod); ok {
				p.ManagedFields = nil
			}
			return object, nil
		},
	})
	f.running.Go(func() { informer.RunWithContext(f.ctx) })
	if !cache.WaitForCacheSync(f.ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("listing pods: %w", context.Cause(f.ctx))
	}
	return nil
}

// observe takes in the API server's latest word on a Pod.
func (f *Fleet) observe(object *corev1.Pod) {
	n := f.nodes[object.Spec.NodeName]
	if n == nil {
		return
	}
	f.mu.Lock()
	p := f.pods[object.UID]
	if p == nil && f.ctx.Err() == nil {
		if object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
			f.mu.Unlock()
			return // finished before this fleet's time
		}
		p = newPod(f, n, object)
		f.pods[object.UID] = p
		f.keys[p.key] = p
	}
	f.mu.Unlock()
	if p != nil {
		p.observe(object)
	}
}

// forget drops a Pod that is gone from the API server.
func (f *Fleet) forget(object *corev1.Pod) {
	f.mu.Lock()
	p := f.pods[object.UID]
	delete(f.pods, object.UID)
	if p != nil && f.keys[p.key] == p {
		delete(f.keys, p.key)
	}
	f.mu.Unlock()
	if p != nil {
		p.kill()
	}
}

func (f *Fleet) find(namespace, name string) *pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[namespace+"/"+name]
}

// Node returns the i-th node.
func (f *Fleet) Node(i int) *Node { return f.nodes[f.names[i]] }

// NodeByName returns a node, or nil.
func (f *Fleet) NodeByName(name string) *Node { return f.nodes[name] }

// Stop ends every node, Pod, connection and goroutine of the fleet; what it registered in the API server stays. It may
// be called more than once.
func (f *Fleet) Stop() {
	f.stopOnce.Do(func() {
		f.cancel()
		f.queue.ShutDown()
		for _, n := range f.nodes {
			n.close()
		}
		f.mu.Lock()
		pods := f.pods
		f.pods, f.keys = map[types.UID]*pod{}, map[string]*pod{}
		f.mu.Unlock()
		for _, p := range pods {
			p.kill()
		}
		f.network.close()
	})
	f.running.Wait()
}

// network gives each Pod a loopback address of its own, from a block that no other fleet on this machine uses.
type network struct {
	guard net.Listener
	block byte

	mu   sync.Mutex
	next uint16
	used map[uint16]struct{}
}

// guardPort is bound on the last address of a block for as long as the block is in use.
const guardPort = "15019"

func newNetwork() (*network, error) {
	var last error
	for block := 1; block < 255; block++ {
		guard, err := net.Listen("tcp4", fmt.Sprintf("127.%d.255.254:%s", block, guardPort))
		if err == nil {
			return &network{guard: guard, block: byte(block), used: map[uint16]struct{}{}}, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no free block of loopback addresses: %w", last)
}

// take returns a free address, going round so that an address is reused as late as can be; "" where all are taken.
func (n *network) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 0xfe00 {
		n.next++
		if n.next >= 0xff00 {
			n.next = 1
		}
		if _, taken := n.used[n.next]; !taken {
			n.used[n.next] = struct{}{}
			return fmt.Sprintf("127.%d.%d.%d", n.block, n.next>>8, n.next&0xff)
		}
	}
	return ""
}

func (n *network) give(ip string) {
	if address := net.ParseIP(ip).To4(); address != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.used, uint16(address[2])<<8|uint16(address[3]))
	}
}

func (n *network) close() { _ = n.guard.Close() }
