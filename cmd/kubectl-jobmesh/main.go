// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-jobmesh is the kubectl plugin: `kubectl jobmesh …`. This file turns a command's errors into a line each and an exit
// status; each command has a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/jobmesh/jobmesh/internal/sanitize"
)

// The exit statuses besides 0.
const (
	exitCluster = 1
	exitInput   = 2
)

// inputError is the user's to correct: usage, a file, the client's configuration. usage names the command whose help to show the way to.
type inputError struct {
	err   error
	usage string
}

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

func badInput(err error) error { return &inputError{err: err} }

func badUsage(command, format string, args ...any) error {
	return &inputError{fmt.Errorf(format, args...), command}
}

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(run(context.Background(), os.Args[1:], streams))
}

// run runs one command line and returns its exit status.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := newRootCommand(streams)
	root.SetArgs(append([]string{}, args...)) // nil would be os.Args
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for _, err := range separate(err) {
		fmt.Fprintf(streams.ErrOut, "error: %s\n", sanitize.Text(err.Error()))
	}
	if bad, ok := errors.AsType[*inputError](err); ok {
		if bad.usage != "" {
			fmt.Fprintf(streams.ErrOut, "See '%s --help' for usage.\n", bad.usage)
		}
		return exitInput
	}
	return exitCluster
}

// separate takes joined errors apart.
func separate(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		errs = append(errs, separate(err)...)
	}
	return errs
}
