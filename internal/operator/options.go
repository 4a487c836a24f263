// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator wires the operator: from options to a running manager.
package operator

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/controllers"
)

// Options are the operator's settings.
type Options struct {
	// DefaultMode holds for pods that no policy governs.
	DefaultMode v1alpha1.Mode
	// Namespaces are the only ones to look at; none means all.
	Namespaces []string
	// AllowExecFallback lets policies ask for the exec fallback.
	AllowExecFallback bool
	// MaxConcurrentQuits and MaxQuitsPerNode cap the attempts under way.
	MaxConcurrentQuits, MaxQuitsPerNode int
	// LeaderElect makes this replica wait until it holds the lease.
	LeaderElect bool
	// LeaderElectionNamespace holds the lease; "" means the namespace that the operator runs in.
	LeaderElectionNamespace string
	// MetricsAddress and ProbeAddress are what the two servers listen on; "0" turns one off.
	MetricsAddress, ProbeAddress string
	// PprofAddress is what the profiles are served on, to nobody but the loopback interface; "0" turns them off.
	PprofAddress string

	// ResyncInterval is how often the cache is checked against the API server.
	ResyncInterval time.Duration
	// StatusInterval is the least time between two writes of one policy's status.
	StatusInterval time.Duration
	// ShutdownGrace is how long an attempt may still take once the operator is told to stop.
	ShutdownGrace time.Duration
	// Registry takes the metrics; nil means the one that MetricsAddress serves. With a registry of its own, several
	// operators can run in one process.
	Registry prometheus.Registerer
}

// Defaults are the options of an operator that was told nothing.
func Defaults() Options {
	return Options{
		DefaultMode:        v1alpha1.ModeDryRun,
		MaxConcurrentQuits: 32,
		MaxQuitsPerNode:    8,
		MetricsAddress:     ":8080",
		ProbeAddress:       ":8081",
		PprofAddress:       off,
		ResyncInterval:     controllers.DefaultResyncInterval,
		StatusInterval:     controllers.DefaultStatusInterval,
		ShutdownGrace:      3 * time.Second,
	}
}

// off is what turns a server off, instead of an address.
const off = "0"

func validateAddress(name, address string) error {
	if address == off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s must be an address with a port from 0 to 65535, such as :8080 or 127.0.0.1:8080, or 0 for none, not %q", name, address)
	}
	return nil
}

// validateLoopback refuses what others could reach: a profile shows the memory, tokens included.
func validateLoopback(name, address string) error {
	if err := validateAddress(name, address); err != nil || address == off {
		return err
	}
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s must be an address of the loopback interface, such as 127.0.0.1:6060, or 0 for none, not %q", name, address)
	}
	return nil
}

var modes = []v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModeDisabled}

// maxQuits bounds the caps. One attempt costs a connection and about a dozen goroutines.
const maxQuits = 1000

// Validate returns the first thing wrong with the options, in the words of the flags.
func (o *Options) Validate() error {
	switch {
	case !slices.Contains(modes, o.DefaultMode):
		return fmt.Errorf("--default-mode must be Enforce, DryRun or Disabled, not %q", o.DefaultMode)
	case o.MaxConcurrentQuits < 1 || o.MaxConcurrentQuits > maxQuits:
		return fmt.Errorf("--max-concurrent-quits must be 1 to %d, not %d", maxQuits, o.MaxConcurrentQuits)
	case o.MaxQuitsPerNode < 1 || o.MaxQuitsPerNode > maxQuits:
		return fmt.Errorf("--max-quits-per-node must be 1 to %d, not %d", maxQuits, o.MaxQuitsPerNode)
	}
	if err := validateAddress("--metrics-bind-address", o.MetricsAddress); err != nil {
		return err
	}
	if err := validateAddress("--health-probe-bind-address", o.ProbeAddress); err != nil {
		return err
	}
	if err := validateLoopback("--pprof-bind-address", o.PprofAddress); err != nil {
		return err
	}
	for _, namespace := range o.Namespaces {
		if namespace == "" {
			return errors.New("--namespaces must list names of namespaces, and not an empty one")
		}
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return fmt.Errorf("--namespaces must list names of namespaces, not %q: %s", namespace, strings.Join(wrong, "; "))
		}
	}
	if ns := o.LeaderElectionNamespace; ns != "" {
		if wrong := validation.IsDNS1123Label(ns); len(wrong) > 0 {
			return fmt.Errorf("--leader-election-namespace must be the name of a namespace, not %q: %s", ns, strings.Join(wrong, "; "))
		}
	}
	return nil
}
