// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures how fast Jobs end, with JobMesh and with what people do instead, and writes docs/performance.md with its
// figures. Run it from the checkout's root, beside the node that cmd/e2e brings up or the cluster that it is given:
//
//	bin/e2e bin/bench [-jobs N] [-bursts N]
//
// It ends with exit code 1, and has written the document all the same, where a threshold was missed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

type options struct {
	jobs, bursts, pods int
	docs, data, render string
}

func main() {
	var o options
	flag.IntVar(&o.jobs, "jobs", 20, "Jobs of each kind, one of each per round.")
	flag.IntVar(&o.bursts, "bursts", 3, "bursts of each kind, one of each per round.")
	flag.IntVar(&o.pods, "pods", 20, "pods of one burst.")
	flag.StringVar(&o.docs, "docs", "docs", "the folder that takes performance.md and images/.")
	flag.StringVar(&o.data, "data", "", "a file for everything that was measured, as JSON; by default bench.json in ARTIFACTS.")
	flag.StringVar(&o.render, "render", "", "measure nothing: write the documents from such a file.")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limits, err := readThresholds()
	if err != nil {
		return err
	}
	results, err := obtain(ctx, o)
	if err != nil {
		return err
	}
	report := summarize(results, limits)
	if err := report.write(o.docs); err != nil {
		return err
	}
	fmt.Print(report.text())
	return report.missed()
}

// obtain measures, or reads what was measured before.
func obtain(ctx context.Context, o options) (*results, error) {
	r := &results{}
	if o.render == "" {
		if o.data == "" {
			o.data = filepath.Join(os.Getenv("ARTIFACTS"), "bench.json")
		}
		return r, measure(ctx, o, r)
	}
	text, err := os.ReadFile(o.render)
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, r)
}

// save writes everything that was measured so far.
func (r *results) save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
