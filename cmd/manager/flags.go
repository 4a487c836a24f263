// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The flags, and the variables that stand in for them.

package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/jobmesh/jobmesh/internal/operator"
)

func addFlags(flags *pflag.FlagSet, o *operator.Options, l *logging) {
	flags.StringVar((*string)(&o.DefaultMode), "default-mode", string(o.DefaultMode),
		"what happens to stuck pods that no policy governs: Enforce, DryRun or Disabled")
	flags.StringSliceVar(&o.Namespaces, "namespaces", nil, "the only namespaces to look at, separated by commas (default all)")
	flags.BoolVar(&o.AllowExecFallback, "allow-exec-fallback", o.AllowExecFallback,
		"let policies ask for the exec fallback; needs the right to create pods/exec")
	flags.IntVar(&o.MaxConcurrentQuits, "max-concurrent-quits", o.MaxConcurrentQuits, "cap on the attempts under way, in total")
	flags.IntVar(&o.MaxQuitsPerNode, "max-quits-per-node", o.MaxQuitsPerNode, "cap on the attempts under way to the pods of one node")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "wait for the lease, so that several replicas can run")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"namespace of the lease (default the operator's own)")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "address of the metrics endpoint; 0 turns it off")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", o.ProbeAddress, "address of /healthz and /readyz; 0 turns them off")
	flags.StringVar(&o.PprofAddress, "pprof-bind-address", o.PprofAddress,
		"address of /debug/pprof, on the loopback interface only; 0 turns it off")
	flags.StringVar(&l.format, "log-format", l.format, "json or text")
	flags.StringVar(&l.level, "log-level", l.level, "error, info (actions), debug (decisions) or trace")

	kubeconfig := flag.NewFlagSet("", flag.ContinueOnError)
	config.RegisterFlags(kubeconfig)
	flags.AddGoFlagSet(kubeconfig)
}

// fromEnvironment sets each flag that was not given from its variable: JOBMESH_ and the flag's name in capitals.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "JOBMESH_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || f.Changed || wrong != nil || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = fmt.Errorf("%s: %w", name, inPlainWords(err))
		}
	})
	return wrong
}

// kinds says what a flag takes, by its type.
var kinds = map[string]string{"int": "a whole number", "bool": "true or false"}

// inPlainWords says what is allowed where a value is not of the flag's type.
func inPlainWords(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	kind, ok := kinds[invalid.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s must be %s, not %q", invalid.GetFlag().Name, kind, invalid.GetValue())
}
