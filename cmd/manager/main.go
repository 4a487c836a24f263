// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The operator's binary: flags, logging, signals. What runs is in package operator.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/jobmesh/jobmesh/internal/operator"
	"github.com/jobmesh/jobmesh/internal/version"
)

// Exit codes: a wrong flag is the user's to fix, anything else the cluster's.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, start)) }

func run(args []string, out, errOut io.Writer, start func(operator.Options, logging) error) int {
	var failed error
	cmd := command(func(o operator.Options, l logging) { failed = start(o, l) })
	cmd.SetArgs(args)
	cmd.SetOut(out)
	if err := cmd.Execute(); err != nil {
		fmt.Fprintf(errOut, "Error: %s (see --help)\n", err)
		return exitUsage
	}
	if failed != nil {
		ctrl.Log.Error(failed, "The operator ended")
		return exitFailed
	}
	return 0
}

func command(start func(operator.Options, logging)) *cobra.Command {
	o, l := operator.Defaults(), defaultLogging()
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the JobMesh operator",
		Long: "Runs the JobMesh operator: it asks the istio-proxy of finished Job pods to quit.\n\n" +
			"Every flag can be given as a variable too: JOBMESH_DEFAULT_MODE for --default-mode, and so on. The flag wins.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version.Version + " (" + version.Commit() + ")",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := l.validate(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			start(o, l)
			return nil
		},
	}
	addFlags(cmd.Flags(), &o, &l)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return inPlainWords(err) })
	return cmd
}

func start(o operator.Options, l logging) error {
	logger := l.logger(os.Stderr)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	restConfig, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster (give --kubeconfig or KUBECONFIG, or run in a cluster): %w", err)
	}
	logger.Info("Starting", "version", version.Version, "revision", version.Commit(), "defaultMode", o.DefaultMode)
	return operator.Run(ctrl.SetupSignalHandler(), restConfig, o)
}
