// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster starts a real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler) on random loopback ports, for tests and for the demo. It needs no root and leaves nothing behind.
// A node is not part of it: see simnode.
//
// This file holds the cluster's life: options, start and stop.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/jobmesh/jobmesh/test/controlplane"
)

// Options say how a Cluster is started. The zero value is what most tests want.
type Options struct {
	// Assets is the folder with the binaries; "" is controlplane.Dir of Version.
	Assets string
	// Version is the Kubernetes release to look for where Assets is "", without the v; "" is controlplane.Version.
	Version string
	// APIServerFlags, ControllerManagerFlags and SchedulerFlags are added to the command lines, so they win over the
	// flags that Start chose.
	APIServerFlags, ControllerManagerFlags, SchedulerFlags []string
	// APIServerOnly leaves out the controller manager and the scheduler: no Job gets Pods, no ServiceAccount appears in
	// a new namespace, and the API server does not wait for one.
	APIServerOnly bool
	// APIServerPort is where the API server listens; 0 is a free port.
	APIServerPort int
	// APIServerAddresses are what its certificate names beside loopback. For it to listen there too takes a flag.
	APIServerAddresses []net.IP
	// LogDir keeps the components' logs in a folder that outlives the cluster; "" is a folder that does not.
	LogDir string
	// StartTimeout bounds the whole start; 0 is a minute.
	StartTimeout time.Duration
}

// Cluster is a running control plane.
type Cluster struct {
	dir       string
	lock      *os.File
	logDir    string
	authority *authority
	version   *version.Version
	url       string
	config    *rest.Config
	processes []*process
	stopOnce  sync.Once
	stopped   chan struct{}
	release   func() bool
}

// Start starts a control plane and waits until it answers. The cluster stops by Stop, when ctx is done, and on Linux
// also when the calling program dies. On an error nothing is left running, and the error ends with the last lines of
// the failed component's log.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Assets == "" {
		dir, err := controlplane.Dir(options.Version)
		if err != nil {
			return nil, err
		}
		options.Assets = dir
	}
	if options.StartTimeout == 0 {
		options.StartTimeout = time.Minute
	}
	startCtx, cancel := context.WithTimeout(ctx, options.StartTimeout)
	defer cancel()

	// A port is free when it is picked, not when it is taken: where another program was faster, try again.
	var err error
	for range 3 {
		var c *Cluster
		if c, err = start(startCtx, options); err == nil {
			c.release = context.AfterFunc(ctx, func() { _ = c.Stop() })
			return c, nil
		}
		if startCtx.Err() != nil || !errors.Is(err, errExited) {
			break
		}
	}
	return nil, fmt.Errorf("starting the control plane: %w", err)
}

func start(ctx context.Context, options Options) (_ *Cluster, err error) {
	removeOrphans()
	dir, lock, err := makeDir()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, lock: lock, logDir: options.LogDir, stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.logDir == "" {
		c.logDir = dir
	}
	if c.version, err = releaseOf(ctx, options.Assets); err != nil {
		return nil, err
	}
	if c.authority, err = newAuthority(dir, options.APIServerAddresses...); err != nil {
		return nil, err
	}
	etcdPort, err := freePort()
	if err != nil {
		return nil, err
	}
	apiPort := options.APIServerPort
	if apiPort == 0 {
		if apiPort, err = freePort(); err != nil {
			return nil, err
		}
	}
	etcdURL := "http://127.0.0.1:" + strconv.Itoa(etcdPort)
	c.url = "https://127.0.0.1:" + strconv.Itoa(apiPort)
	if c.config, err = c.UserConfig("admin", "system:masters"); err != nil {
		return nil, err
	}

	etcd, err := c.run(options.Assets, "etcd", etcdFlags(dir, etcdURL))
	if err != nil {
		return nil, err
	}
	// The API server retries until etcd answers, so both may start at once.
	apiServer, err := c.run(options.Assets, "kube-apiserver",
		slices.Concat(apiServerFlags(c.authority, etcdURL, apiPort, options.APIServerOnly), gates(c.version), options.APIServerFlags))
	if err != nil {
		return nil, err
	}
	if err := c.waitReady(ctx, etcd, apiServer); err != nil {
		return nil, err
	}
	if options.APIServerOnly {
		return c, nil
	}

	managerFlags, err := c.controllerManagerFlags()
	if err != nil {
		return nil, err
	}
	manager, err := c.run(options.Assets, "kube-controller-manager", slices.Concat(managerFlags, gates(c.version), options.ControllerManagerFlags))
	if err != nil {
		return nil, err
	}
	schedulerFlags, err := c.schedulerFlags()
	if err != nil {
		return nil, err
	}
	scheduler, err := c.run(options.Assets, "kube-scheduler", slices.Concat(schedulerFlags, gates(c.version), options.SchedulerFlags))
	if err != nil {
		return nil, err
	}
	return c, c.waitControllers(ctx, manager, scheduler)
}

// Config returns the credentials of a cluster administrator. The caller owns the copy.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Done is closed when the cluster has stopped.
func (c *Cluster) Done() <-chan struct{} { return c.stopped }

// Log opens the log of a component ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler").
func (c *Cluster) Log(component string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(c.logDir, component+".log"))
}

// Stop ends every process and removes what the cluster wrote. It may be called more than once.
func (c *Cluster) Stop() (err error) {
	c.stopOnce.Do(func() {
		defer close(c.stopped)
		if c.release != nil {
			c.release()
		}
		var all sync.WaitGroup
		for _, p := range c.processes {
			all.Go(p.stop)
		}
		all.Wait()
		err = errors.Join(os.RemoveAll(c.dir), c.lock.Close())
	})
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
