// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The demo: a Job that is stuck behind its istio-proxy is shown and then reaped, on a real control plane with a simulated
// node, by the operator's own binary. `make demo` builds what it needs and runs it. It ends with 0 only if every Job ended
// as told, and leaves nothing behind.
//
// This file holds the program's life: signals, the end, the exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// cleanupBound is when a cleanup that hangs is given up.
const cleanupBound = 30 * time.Second

// interruption is why the demo ends early without having failed.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return i.signal.String() }

// errNobodyReads ends the demo when its output is closed, as by `make demo | head`.
var errNobodyReads = interruption{syscall.SIGPIPE}

func main() { os.Exit(run()) }

func run() int {
	// What the libraries log is the simulated node's side of the story, in the middle of ours.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	interruptOnSignals(cancel)
	s := newScreen(os.Stdout, func() { cancel(errNobodyReads) })

	began := time.Now()
	rig := &rig{}
	err := tell(ctx, s, rig)
	cause := context.Cause(ctx)
	interrupted, early := errors.AsType[interruption](cause)

	hung := time.AfterFunc(cleanupBound, func() {
		fmt.Fprintln(os.Stderr, "The cleanup hangs; giving up.")
		os.Exit(1)
	})
	logs, cleanupErr := rig.stop(err != nil && !early)
	hung.Stop()

	switch {
	case early:
		s.linef("")
		s.linef("Ended early (%s). Everything is cleaned up.", interrupted)
		return 128 + int(interrupted.signal)
	case err != nil:
		s.linef("")
		s.linef("%s %s", s.bad("The demo failed:"), err)
		if logs != "" {
			s.linef("The logs are in %s; all else is cleaned up.", logs)
		}
		return 1
	case cleanupErr != nil:
		s.linef("%s %s", s.bad("The cleanup failed:"), cleanupErr)
		return 1
	}
	s.linef("Everything is cleaned up. The demo took %s.", seconds(time.Since(began)))
	return 0
}

// interruptOnSignals ends the context by the first signal, and keeps the further ones from cutting the cleanup short.
func interruptOnSignals(cancel context.CancelCauseFunc) {
	// A write to a closed output is then an error, which the screen sees, and no sudden end.
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // it is under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ends...)
	go func() {
		for s := range signals {
			cancel(interruption{s.(syscall.Signal)})
		}
	}()
}
