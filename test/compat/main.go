// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Compat runs the tests that need an API server against one Kubernetes release after another, and holds docs/compatibility.md
// against what it saw.
//
//	go run ./test/compat [-update] [VERSION...]
//
// It runs from the root of the checkout, and builds the control planes that are not there yet. Without a version it takes the ones
// that the document names; "oldest" and "newest" are two of those. With -update it writes the document instead of comparing it.
//
// This file holds the command line.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// document is the file with the table, seen from the root of the checkout.
const document = "docs/compatibility.md"

func main() {
	update := flag.Bool("update", false, "write the table of "+document)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, flag.Args(), *update)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, releases []string, update bool) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	doc, err := parseDocument(text)
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	if len(releases) == 0 {
		releases = doc.releases()
	}
	if releases, err = named(releases, doc.releases()); err != nil {
		return err
	}

	var results []*result
	for _, release := range releases {
		r, err := test(ctx, release)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("testing Kubernetes %s: %w", release, err)
		}
		results = append(results, r)
	}
	fmt.Println()
	printSummary(os.Stdout, results)

	failed := 0
	for _, r := range results {
		if !r.passed() {
			failed++
			continue
		}
		doc.set(r)
	}
	if failed > 0 {
		return fmt.Errorf("failed on %d of %d releases", failed, len(results))
	}
	written := doc.bytes()
	switch {
	case bytes.Equal(written, text):
		return nil
	case update:
		return os.WriteFile(document, written, 0o644)
	default:
		return fmt.Errorf("the table of %s is not what was seen. Write it with: make test-compat ARGS=-update", document)
	}
}

// named puts what is meant for "oldest" and "newest" of the documented releases, which are in order, and refuses what is no version.
func named(releases, documented []string) ([]string, error) {
	meant := make([]string, len(releases))
	for i, release := range releases {
		switch release {
		case "oldest":
			release = documented[0]
		case "newest":
			release = documented[len(documented)-1]
		}
		if _, err := version.ParseSemantic(release); err != nil {
			return nil, fmt.Errorf("a version must look like 1.37.2, or be oldest or newest: %w", err)
		}
		meant[i] = release
	}
	return meant, nil
}

// result is what came of one release.
type result struct {
	release string
	// took is the length of the tests alone, without the build of the control plane.
	took time.Duration
	// packages counts those that passed and failed, tests those that passed, failed and were skipped, subtests included.
	packages, tests map[string]int
	// facts are the attributes that the tests gave themselves.
	facts map[string]string
	// skipped maps tests to their reasons.
	skipped map[string]string
}

func (r *result) passed() bool {
	return r.packages["fail"] == 0 && r.tests["fail"] == 0 && r.packages["pass"] > 0 && r.facts["kubernetes"] == r.release
}
