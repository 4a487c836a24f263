// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Many pods: storms, restarts, hung nodes, full clusters and half an hour of churn, on a real control plane with simulated
// nodes, with the operator's own binary as it ships. `make scale` runs everything and ends with 1 if a threshold of
// thresholds.yaml was missed.
//
// This file holds the program's life: flags, signals, the scenarios one after another, the exit code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the flags.
type options struct {
	scenarios []string
	size      size
	operator  string
	profile   bool
	docs      string
	logs      string
}

// size says how many of everything there are. The default is what the thresholds and the document speak of.
type size struct {
	// Pods are in a storm, and wait at a restart. The other scenarios follow from it.
	Pods  int
	Nodes int
	Churn time.Duration
	// ChurnRate is how many Jobs come and go in a second.
	ChurnRate float64
}

var fullSize = size{Pods: 10_000, Nodes: 50, Churn: 30 * time.Minute, ChurnRate: 5}

func (s size) bare() int            { return min(s.Pods, max(s.Pods/10, 1000)) }
func (s size) late() int            { return max(s.Pods/50, 20) }
func (s size) healthy() int         { return s.Pods / 10 }
func (s size) hung() int            { return s.Pods / 20 }
func (s size) deploymentPods() int  { return 3 * s.Pods }
func (s size) finishedJobPods() int { return 2 * s.Pods }

// scenario is one of those that -scenario names.
type scenario struct {
	name  string
	title string
	about string
	run   func(context.Context, *rig, size) ([]figure, error)
}

var scenarios = []scenario{
	{"storm", "A storm", stormAbout, storm},
	{"restart", "A restart before a backlog", restartAbout, restart},
	{"hung", "A node that hangs", hungAbout, hung},
	{"background", "A full cluster around it", backgroundAbout, background},
	{"churn", "Jobs that come and go", churnAbout, churn},
}

func readFlags(args []string) (options, error) {
	o := options{size: fullSize}
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	chosen := flags.String("scenario", strings.Join(names, ","), "what to run")
	flags.IntVar(&o.size.Pods, "pods", fullSize.Pods, "pods of a storm; the other scenarios are sized by it too")
	flags.IntVar(&o.size.Nodes, "nodes", fullSize.Nodes, "simulated nodes")
	flags.DurationVar(&o.size.Churn, "churn", fullSize.Churn, "how long Jobs come and go")
	flags.Float64Var(&o.size.ChurnRate, "churn-rate", fullSize.ChurnRate, "how many Jobs come and go in a second")
	flags.StringVar(&o.operator, "operator", "bin/manager", "the operator's binary")
	flags.BoolVar(&o.profile, "profile", false, "write processor profiles of the operator and the API server among the logs")
	flags.StringVar(&o.docs, "docs", "", "the document to write the figures to, or none; without it a run of the full size writes docs/reliability.md")
	flags.StringVar(&o.logs, "logs", os.Getenv("ARTIFACTS"), "a folder that keeps all logs; without it they are kept, and their folder is printed, after a failure")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.scenarios = strings.Split(*chosen, ",")
	for _, name := range o.scenarios {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("no scenario %q, there are: %s", name, strings.Join(names, ", "))
		}
	}
	switch {
	case o.docs == "none":
		o.docs = ""
	case o.docs == "" && o.size == fullSize:
		o.docs = "docs/reliability.md"
	}
	if o.size.Nodes < 2 || o.size.Pods < 100 {
		return o, errors.New("it takes at least 2 nodes and 100 pods")
	}
	return o, nil
}

func main() {
	// What the libraries log is the simulated nodes' side of the story.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	o, err := readFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run runs all scenarios, whatever becomes of one of them.
func run(ctx context.Context, o options) error {
	limits, err := readLimits()
	if err != nil {
		return err
	}
	var failed []error
	var all []report
	for _, s := range scenarios {
		if !slices.Contains(o.scenarios, s.name) || ctx.Err() != nil {
			continue
		}
		r, err := runOne(ctx, s, o)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		r.judge(limits)
		fmt.Print(r.text())
		all = append(all, r)
		failed = append(failed, r.missed())
		if o.docs != "" {
			failed = append(failed, r.writeTo(o.docs))
		}
	}
	if len(all) > 1 {
		fmt.Println()
		for _, r := range all {
			fmt.Print(r.text())
		}
	}
	return errors.Join(failed...)
}

func runOne(ctx context.Context, s scenario, o options) (report, error) {
	fmt.Printf("\n== %s (%s)\n\n", s.title, s.name)
	r := report{Scenario: s.name, Title: s.title, About: s.about, Pods: o.size.Pods, Date: time.Now().UTC(), Load: load()}
	rig := &rig{began: time.Now(), operator: o.operator, profile: o.profile, logs: o.logs, name: s.name}
	err := rig.start(ctx, o.size)
	if err == nil {
		r.Machine, err = describeMachine(rig, o.size)
	}
	if err == nil {
		r.Figures, err = s.run(ctx, rig, o.size)
	}
	kept, stopErr := rig.stop(err != nil)
	if err != nil && kept != "" {
		err = fmt.Errorf("%w (logs: %s)", err, kept)
	}
	return r, errors.Join(err, stopErr)
}
