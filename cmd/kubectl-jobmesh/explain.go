// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The command explain: its flags, its arguments, its output.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/explain"
	"github.com/jobmesh/jobmesh/internal/policy"
	"github.com/jobmesh/jobmesh/internal/sanitize"
)

const explainLong = `Explain what the operator decides about a pod, and every fact that led to it, container by container.

The pods are read from the cluster (pod/NAME, job/NAME for all pods of a Job, or the bare name of a pod), or with -f from files,
without a cluster: YAML or JSON, several documents, Lists, as kubectl prints them. A file may also hold the pods' Jobs, whose
activeDeadlineSeconds cut a grace period short, and JobMeshPolicies. In files, a pod or Job without a namespace is in that of -n, or in
"default"; a policy without one counts for every pod; a policy that was never created counts as the youngest.

--policy takes the policies from files instead of the cluster. Beside -f, it replaces policies of the same name.

The operator's own flags cannot be read from the cluster: say with --default-mode and --allow-exec-fallback how it runs. What it
remembers of earlier attempts is its own too, so that a pod which it just asked or failed to ask (Quitting, Backoff) is explained as Quit.

With -o json or yaml one pod is one object, and several are a list: {"items": [...]}. Every key is always present.
In jq, '.items // [.] | .[]' reads both.

The exit status is 0 for any verdict, 1 where the cluster has an error, 2 for bad input or usage.`

const explainExample = `  # A pod, and all pods of a Job
  kubectl jobmesh explain pod/seed-x7k2p
  kubectl jobmesh explain job/seed -n shop

  # A pod without its cluster, under a policy that is not applied yet
  kubectl get pod seed-x7k2p -o yaml | kubectl jobmesh explain -f - --policy policy.yaml

  # The names of all pods of a namespace that would be asked to quit
  kubectl get pods -n shop -o json | kubectl jobmesh explain -f - --policy policy.yaml -o json |
    jq -r '.items // [.] | .[] | select(.verdict == "Quit") | .pod.name'`

// explainOptions are the flags and arguments of one call.
type explainOptions struct {
	genericiooptions.IOStreams
	cluster     *genericclioptions.ConfigFlags
	command     string
	files       []string
	policyFiles []string
	output      string
	defaultMode string
	allowExec   bool
	stdinTaken  bool
}

var (
	outputs = []string{"text", "json", "yaml"}
	modes   = []string{string(v1alpha1.ModeEnforce), string(v1alpha1.ModeDryRun), string(v1alpha1.ModeDisabled)}
)

func newExplainCommand(streams genericiooptions.IOStreams, cluster *genericclioptions.ConfigFlags) *cobra.Command {
	o := &explainOptions{IOStreams: streams, cluster: cluster}
	cmd := &cobra.Command{
		Use:                   "explain (pod/NAME | job/NAME | NAME)... | -f FILE",
		Short:                 "Explain what the operator decides about a pod, and why",
		Long:                  explainLong,
		Example:               explainExample,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = cmd.CommandPath()
			return o.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "file with pods to explain without a cluster; - is the standard input; may be repeated")
	flags.StringArrayVar(&o.policyFiles, "policy", nil, "file with JobMeshPolicies to use instead of the cluster's; - is the standard input; may be repeated")
	flags.StringVarP(&o.output, "output", "o", "text", "output format: "+strings.Join(outputs, ", "))
	flags.StringVar(&o.defaultMode, "default-mode", string(v1alpha1.ModeDryRun),
		"mode of pods that no policy governs, as the operator's flag has it: "+strings.Join(modes, ", "))
	flags.BoolVar(&o.allowExec, "allow-exec-fallback", false, "whether policies may ask for the exec fallback, as the operator's flag has it")
	return cmd
}

func (o *explainOptions) run(ctx context.Context, args []string) error {
	if !slices.Contains(outputs, o.output) {
		return badUsage(o.command, "unknown output format %q: must be one of %s", o.output, strings.Join(outputs, ", "))
	}
	if !slices.Contains(modes, o.defaultMode) {
		return badUsage(o.command, "unknown --default-mode %q: must be one of %s", o.defaultMode, strings.Join(modes, ", "))
	}
	if len(args) > 0 && len(o.files) > 0 {
		return badUsage(o.command, "name pods or files, not both")
	}
	targets, err := parseTargets(args)
	if err != nil {
		return badUsage(o.command, "%w", err)
	}
	if err := checkNamespace(*o.cluster.Namespace); err != nil {
		return badUsage(o.command, "%w", err)
	}
	var found []explain.Explanation
	switch now := time.Now(); {
	case len(o.files) > 0:
		found, err = o.fromFiles(now)
	case len(targets) > 0:
		found, err = o.fromCluster(ctx, targets, now)
	default:
		return badUsage(o.command, "name a pod, such as pod/NAME, or a file with -f")
	}
	// What could be explained is shown, whatever became of the rest.
	if err != nil && len(found) == 0 {
		return err
	}
	return errors.Join(o.write(found), err)
}

func (o *explainOptions) write(found []explain.Explanation) error {
	write := map[string]func(io.Writer, []explain.Explanation) error{
		"text": explain.WriteText, "json": explain.WriteJSON, "yaml": explain.WriteYAML,
	}[o.output]
	return write(o.Out, found)
}

func (o *explainOptions) defaults() policy.Defaults {
	return policy.Defaults{Mode: v1alpha1.Mode(o.defaultMode), AllowExecFallback: o.allowExec}
}

// note tells the user something beside the output.
func (o *explainOptions) note(format string, args ...any) {
	fmt.Fprintf(o.ErrOut, "note: %s\n", sanitize.Text(fmt.Sprintf(format, args...)))
}
