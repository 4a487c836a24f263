// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds one node: its registration, its lease and its faults.

package simnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeIP is every node's address; they differ by the port.
const nodeIP = "127.0.0.1"

// Fault is what is wrong with a node's port-forward.
type Fault int32

// The faults.
const (
	FaultNone              Fault = iota // nothing
	FaultHangBeforeUpgrade              // the request gets no answer
	FaultHangAfterUpgrade               // the streams open and stay silent
	FaultServerError                    // the request is answered by 500
	FaultSilentSuccess                  // the streams are closed at once, with nothing forwarded and no error
)

// Node is one simulated node.
type Node struct {
	fleet    *Fleet
	name     string
	server   *http.Server
	listener *trackingListener
	fault    atomic.Int32
	offline  atomic.Bool

	mu        sync.Mutex
	unblock   chan struct{} // closed when the present fault ends
	heartbeat context.CancelFunc
}

func (f *Fleet) newNode(name string, certificate tls.Certificate) (*Node, error) {
	n := &Node{fleet: f, name: name, unblock: make(chan struct{})}
	var err error
	if n.listener, err = newTrackingListener(nodeIP + ":0"); err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	n.server = n.newServer(certificate)
	f.running.Go(func() { _ = n.server.ServeTLS(n.listener, "", "") })
	return n, nil
}

// Name is the Node's name in the API server.
func (n *Node) Name() string { return n.name }

// SetFault switches the fault of the node's port-forward. Requests that hang under the earlier fault end with an error.
func (n *Node) SetFault(fault Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault.Store(int32(fault))
	close(n.unblock)
	n.unblock = make(chan struct{})
}

// blocked blocks as long as the present fault lasts, at most until ctx ends.
func (n *Node) blocked(ctx context.Context) {
	n.mu.Lock()
	unblock := n.unblock
	n.mu.Unlock()
	select {
	case <-unblock:
	case <-ctx.Done():
	case <-n.fleet.ctx.Done():
	}
}

// SetOffline takes the node down or brings it back. While it is down its lease is not renewed, the statuses of its Pods
// go stale, connections to it hang, and nothing on it starts; what ran runs on unseen.
func (n *Node) SetOffline(offline bool) error {
	if n.offline.Swap(offline) == offline {
		return nil
	}
	if offline {
		n.mu.Lock()
		n.heartbeat()
		n.mu.Unlock()
		n.SetFault(FaultHangBeforeUpgrade)
		n.listener.closeConns()
		return nil
	}
	n.SetFault(FaultNone)
	n.fleet.mu.Lock()
	var pods []*pod
	for _, p := range n.fleet.pods {
		if p.node == n {
			pods = append(pods, p)
		}
	}
	n.fleet.mu.Unlock()
	for _, p := range pods {
		p.mu.Lock()
		p.sync()
		p.dirty()
		p.mu.Unlock()
	}
	return n.register()
}

// register creates or refreshes the Node and keeps its lease until the node goes offline.
func (n *Node) register() error {
	const leaseSeconds = 40
	ctx, cancel := context.WithCancel(n.fleet.ctx)
	n.mu.Lock()
	n.heartbeat = cancel
	n.mu.Unlock()
	controller, err := node.NewNodeController(node.NaiveNodeProvider{}, n.object(), n.fleet.client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(n.fleet.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds))
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	n.fleet.running.Go(func() { _ = controller.Run(ctx) })
	select {
	case <-controller.Ready():
		return nil
	case <-controller.Done():
		return fmt.Errorf("node %s: %w", n.name, controller.Err())
	case <-time.After(30 * time.Second):
		return fmt.Errorf("node %s: not registered within 30 s", n.name)
	}
}

func (n *Node) object() *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("100k"),
		corev1.ResourceMemory:           resource.MustParse("100Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(n.fleet.options.PodsPerNode, resource.DecimalSI),
	}
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name,
			Labels: map[string]string{
				corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				"type": "virtual-kubelet",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:        resources,
			Allocatable:     resources,
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.listener.port()}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "containerd://simulated",
				KubeletVersion: n.fleet.kubeletVersion,
			},
		},
	}
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		object.Status.Conditions = append(object.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "Simulated", LastTransitionTime: metav1.Now(),
		})
	}
	return object
}

// close ends the node's server and connections. Its heartbeat ends with the fleet's context.
func (n *Node) close() {
	_ = n.server.Close()
	n.listener.closeConns()
}
