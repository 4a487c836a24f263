// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the components' command lines and the waits for their readiness.

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func etcdFlags(dir, url string) []string {
	return []string{
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
	}
}

func apiServerFlags(a *authority, etcdURL string, port int, only bool) []string {
	flags := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + a.path("apiserver.crt"),
		"--tls-private-key-file=" + a.path("apiserver.key"),
		"--client-ca-file=" + a.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + a.path("serviceaccount.key"),
		"--service-account-signing-key-file=" + a.path("serviceaccount.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		// The simulated kubelets listen on the loopback address that they register.
		"--kubelet-preferred-address-types=InternalIP",
		// The endpoints of the service "kubernetes" must not be loopback, and nobody here dials them.
		"--endpoint-reconciler-type=none",
	}
	if only {
		// Without a controller manager no ServiceAccount would ever appear, and every Pod would be refused.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return flags
}

// clientLimits let a component act as fast as the tests ask it to, where the defaults spread its requests out.
const clientQPS, clientBurst = 1000, 2000

func (c *Cluster) controllerManagerFlags() ([]string, error) {
	kubeconfig, err := c.componentKubeconfig("kube-controller-manager")
	if err != nil {
		return nil, err
	}
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + c.authority.path("serviceaccount.key"),
		"--root-ca-file=" + c.authority.path("ca.crt"),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=" + strconv.Itoa(clientQPS),
		"--kube-api-burst=" + strconv.Itoa(clientBurst),
		"--concurrent-job-syncs=20",
		"--concurrent-gc-syncs=5",
		"--min-resync-period=1h",
		"--node-monitor-period=1s",
	}, nil
}

func (c *Cluster) schedulerFlags() ([]string, error) {
	kubeconfig, err := c.componentKubeconfig("kube-scheduler")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(c.dir, "scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: %d
  burst: %d
`, kubeconfig, clientQPS, clientBurst)
	return []string{"--config=" + config, "--secure-port=0"}, os.WriteFile(config, []byte(text), 0o600)
}

// poll asks until done says so, a process ends, or ctx does.
func poll(ctx context.Context, processes []*process, done func(context.Context) error) error {
	const every = 50 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := done(attempt)
		cancel()
		if err == nil {
			return nil
		}
		for _, p := range processes {
			select {
			case <-p.exited:
				return p.failure()
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, last: %w", ctx.Err(), err)
		case <-time.After(every):
		}
	}
}

// waitReady waits until the API server serves and has created its own objects.
func (c *Cluster) waitReady(ctx context.Context, processes ...*process) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	return poll(ctx, processes, func(ctx context.Context) error {
		if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// waitControllers waits until the controllers have given the namespace default its ServiceAccount: from then on a Pod
// can be created.
func (c *Cluster) waitControllers(ctx context.Context, processes ...*process) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	return poll(ctx, processes, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the controllers are not up: %w", err)
		}
		return err
	})
}
