// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file starts the cluster: network, control plane, containerd, images, kubelet.

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/jobmesh/jobmesh/test/cluster"
)

// Config says what a node is made of. It travels as JSON into the namespaces.
type Config struct {
	// Dir is a folder for its state, LogDir one for its logs.
	Dir, LogDir string
	// Binaries and Images come from Build and Images.
	Binaries Binaries
	Images   []string
}

// Addresses, all within the network namespace. The API server listens on the address and port of its own Service, so that pods
// reach it without a kube-proxy.
const (
	nodeName       = "e2e"
	nodeAddress    = "10.90.0.1"
	podSubnet      = "10.91.0.0/16"
	serviceAddress = "10.96.0.1"
	servicePort    = 443
)

// Node is a running cluster of one node.
type Node struct {
	config  Config
	cluster *cluster.Cluster
	// Kubeconfig is the file with an administrator's credentials.
	Kubeconfig string
	// KubeletPID is the kubelet's process.
	KubeletPID int
}

// Start brings the cluster up inside the namespaces of Inside and returns when its node is ready. Everything ends with the
// namespaces.
func Start(ctx context.Context, config Config) (*Node, error) {
	n := &Node{config: config, Kubeconfig: filepath.Join(config.Dir, "kubeconfig")}
	if err := n.network(ctx); err != nil {
		return nil, err
	}
	containerd, err := n.startContainerd()
	if err != nil {
		return nil, err
	}
	audit, err := n.audit()
	if err != nil {
		return nil, err
	}
	n.cluster, err = cluster.Start(ctx, cluster.Options{
		Assets:             config.Binaries.Kubernetes,
		LogDir:             config.LogDir,
		APIServerPort:      servicePort,
		APIServerAddresses: []net.IP{net.ParseIP(serviceAddress), net.ParseIP(nodeAddress)},
		APIServerFlags:     append(audit, "--bind-address=0.0.0.0", "--advertise-address="+nodeAddress),
		StartTimeout:       3 * time.Minute,
	})
	if err != nil {
		return nil, err
	}
	if err := n.cluster.Kubeconfig(n.Kubeconfig, n.cluster.Config()); err != nil {
		return nil, err
	}
	if err := n.importImages(ctx, containerd); err != nil {
		return nil, err
	}
	kubelet, err := n.startKubelet()
	if err != nil {
		return nil, err
	}
	n.KubeletPID = kubelet.cmd.Process.Pid
	return n, n.waitReady(ctx, containerd, kubelet)
}

// Stop ends the control plane in good order. The end of the namespaces is for the rest.
func (n *Node) Stop() error { return n.cluster.Stop() }

// Describe writes what is in the cluster into the folder for logs: a command that failed may not have come to that itself.
func (n *Node) Describe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for file, args := range map[string]string{
		"cluster-objects.yaml": "get pods,jobs,cronjobs,jobmeshpolicies -o yaml",
		"cluster-describe.txt": "describe pods,jobs",
		"cluster-events.txt":   "get events --sort-by=.metadata.creationTimestamp -o wide",
	} {
		words := append(strings.Fields(args), "--all-namespaces", "--kubeconfig", n.Kubeconfig)
		out, err := exec.CommandContext(ctx, filepath.Join(n.config.Binaries.Kubernetes, "kubectl"), words...).CombinedOutput()
		if err == nil {
			err = os.WriteFile(filepath.Join(n.config.LogDir, file), out, 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %s: %v\n", file, err)
		}
	}
}

// Path is the PATH of a command beside the node: kubectl comes from the node's own Kubernetes.
func (n *Node) Path() string { return n.config.Binaries.Kubernetes + ":" + os.Getenv("PATH") }

// network gives the namespace loopback, the node's address, and a route out that leads nowhere: without one the kubelet finds no
// address to take. A veth pair stands in for a network card, as not every kernel has dummy devices.
func (n *Node) network(ctx context.Context) error {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type veth peer name node1",
		"addr add " + nodeAddress + "/32 dev node0",
		"addr add " + serviceAddress + "/32 dev node0",
		"link set node0 up",
		"link set node1 up",
		"route add default dev node0",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, lastLine(out))
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func (n *Node) path(file string) string { return filepath.Join(n.config.Dir, file) }

func (n *Node) socket() string { return n.path("containerd.sock") }

func (n *Node) startContainerd() (*process, error) {
	network, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []any{
			map[string]any{"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true, "ipam": map[string]any{
				"type":   "host-local",
				"ranges": [][]any{{map[string]any{"subnet": podSubnet}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			}},
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.path("cni"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.path("cni/pods.conflist"), network, 0o644); err != nil {
		return nil, err
	}
	// restrict_oom_score_adj: where root lacks CAP_SYS_RESOURCE, as in many virtual machines and containers, a score below the
	// parent's cannot be set, and no sandbox would start.
	config := fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %[4]q
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%[5]q]
  conf_dir = %[6]q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
`, n.path("containerd"), "/run/containerd", n.socket(), pauseImage, cniDir(), n.path("cni"))
	if err := os.WriteFile(n.path("containerd.toml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	return n.run(filepath.Join(n.config.Binaries.Containerd, "containerd"), "--config", n.path("containerd.toml"))
}

func (n *Node) importImages(ctx context.Context, containerd *process) error {
	ctr := filepath.Join(n.config.Binaries.Containerd, "ctr")
	for _, archive := range n.config.Images {
		err := poll(ctx, 30*time.Second, []*process{containerd}, func() error {
			out, err := exec.CommandContext(ctx, ctr, "--address", n.socket(), "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
			if err != nil {
				return fmt.Errorf("importing %s: %w: %s", filepath.Base(archive), err, lastLine(out))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startKubelet starts a kubelet with a node's own rights. It lets anyone in: whoever can reach it is inside the namespaces.
func (n *Node) startKubelet() (*process, error) {
	credentials, err := n.cluster.UserConfig("system:node:"+nodeName, "system:nodes")
	if err != nil {
		return nil, err
	}
	if err := n.cluster.Kubeconfig(n.path("kubelet.kubeconfig"), credentials); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.path("resolv.conf"), nil, 0o644); err != nil {
		return nil, err
	}
	config, err := json.MarshalIndent(map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":            map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               cgroupOf(n.config.Dir),
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"enforceNodeAllocatable":   []string{},
		"resolvConf":               n.path("resolv.conf"),
		"maxPods":                  250,
		// A disk that is nearly full is the machine's matter.
		"evictionHard":                map[string]any{"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "10Mi"},
		"imageGCHighThresholdPercent": 100,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.path("kubelet.yaml"), config, 0o644); err != nil {
		return nil, err
	}
	return n.run(filepath.Join(n.config.Binaries.Kubernetes, "kubelet"), "--kubeconfig", n.path("kubelet.kubeconfig"),
		"--config", n.path("kubelet.yaml"), "--root-dir", n.path("kubelet"), "--hostname-override", nodeName, "--node-ip", nodeAddress)
}

// waitReady waits until the node is ready for pods.
func (n *Node) waitReady(ctx context.Context, processes ...*process) error {
	client, err := kubernetes.NewForConfig(n.cluster.Config())
	if err != nil {
		return err
	}
	return poll(ctx, 2*time.Minute, processes, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return errors.New("the node is not ready")
		}
		return nil
	})
}

// Environment is what a command beside the node is told, beyond its PATH.
func (n *Node) Environment() []string {
	return []string{
		"KUBECONFIG=" + n.Kubeconfig,
		"IMG=" + OperatorImage, "APP_IMAGE=" + AppImage, "PROXY_IMAGE=" + ProxyImage,
		"E2E_KUBELET_PID=" + strconv.Itoa(n.KubeletPID),
	}
}

// statePattern names the folders of running nodes in the cache; what the star stands for names their cgroups too.
const statePattern = "run-*"

// cgroupOf is the cgroup that all pods of a node are in, as the kubelet names it.
func cgroupOf(dir string) string {
	return "/jobmesh-e2e-" + strings.TrimPrefix(filepath.Base(dir), strings.TrimSuffix(statePattern, "*"))
}
