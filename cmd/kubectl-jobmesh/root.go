// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The root of the command tree, and the version.

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/jobmesh/jobmesh/internal/version"
)

func newRootCommand(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-jobmesh",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl jobmesh"},
		Short:         "See what JobMesh does about the pods of Jobs in an Istio mesh",
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badUsage(cmd.CommandPath(), "unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return badUsage(cmd.CommandPath(), "%w", err) })

	cluster := genericclioptions.NewConfigFlags(true)
	// kubectl's own default waits for ever.
	*cluster.Timeout = "30s"
	cluster.AddFlags(root.PersistentFlags())
	root.AddCommand(newExplainCommand(streams, cluster), newVersionCommand(streams))
	return root
}

func newVersionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(streams.Out, versionLine())
			return err
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badUsage(cmd.CommandPath(), "%s takes no arguments", cmd.CommandPath())
	}
	return nil
}

func versionLine() string {
	return fmt.Sprintf("kubectl-jobmesh %s (%s)\n", version.Version, version.Commit())
}
