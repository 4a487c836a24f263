// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file builds one control plane, runs the tests against it, and reads what they say.

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// packages are those whose tests meet a real API server.
var packages = []string{"./api/...", "./controllers", "./test/cluster", "./test/simnode"}

// test runs everything against one release.
func test(ctx context.Context, release string) (*result, error) {
	fmt.Printf("=== Kubernetes %s\n", release)
	began := time.Now()
	build := command(ctx, "test/controlplane/build.sh", release)
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("building the control plane: %w", err)
	}
	assets := strings.TrimSpace(string(out))
	if took := time.Since(began); took > 10*time.Second {
		fmt.Printf("The control plane was built in %s\n", took.Round(time.Second))
	}

	began = time.Now()
	tests := command(ctx, "go", append([]string{"test", "-json", "-count=1", "-p=1", "-timeout=20m"}, packages...)...)
	tests.Env = append(os.Environ(), "JOBMESH_ASSETS="+assets, "KUBEBUILDER_ASSETS="+assets)
	tests.Stderr = os.Stderr
	events, err := tests.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := tests.Start(); err != nil {
		return nil, err
	}
	r := newResult(release)
	readErr := r.read(events, os.Stdout)
	var exit *exec.ExitError
	if err := tests.Wait(); err != nil && (!errors.As(err, &exit) || r.packages["fail"] == 0) {
		return nil, errors.Join(readErr, err)
	}
	r.took = time.Since(began)
	return r, readErr
}

// command is ended, with all that it started, by a signal that lets it clean up: go test passes none on to the tests it runs.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	return c
}

func newResult(release string) *result {
	return &result{
		release: release, packages: map[string]int{}, tests: map[string]int{}, facts: map[string]string{}, skipped: map[string]string{},
	}
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output, Key, Value string
}

// read takes in the events of `go test -json`, and passes on the closing lines of packages and all that failed tests have said.
func (r *result) read(events io.Reader, w io.Writer) error {
	said := map[[2]string]*bytes.Buffer{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			_, _ = fmt.Fprintln(w, lines.Text()) // go's own words, not a test's
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "output":
			if e.Test == "" && strings.Contains(e.Output, "\t"+e.Package) {
				_, _ = fmt.Fprint(w, e.Output)
				break
			}
			if said[key] == nil {
				said[key] = &bytes.Buffer{}
			}
			said[key].WriteString(e.Output)
		case "build-output":
			_, _ = fmt.Fprint(w, e.Output)
		case "attr":
			r.facts[e.Key] = e.Value
		case "pass", "fail", "skip":
			r.ended(e, said, w)
		}
	}
	return lines.Err()
}

// ended takes in that a test or package has ended.
func (r *result) ended(e event, said map[[2]string]*bytes.Buffer, w io.Writer) {
	key := [2]string{e.Package, e.Test}
	if e.Test == "" {
		r.packages[e.Action]++
	} else {
		r.tests[e.Action]++
	}
	switch {
	case e.Action == "skip" && e.Test != "":
		r.skipped[e.Test] = reason(said[key])
	case e.Action == "fail":
		// What is left of a package that failed is of tests that did not end.
		for k, text := range said {
			if k == key || e.Test == "" && k[0] == e.Package {
				_, _ = w.Write(text.Bytes())
				delete(said, k)
			}
		}
	}
	delete(said, key)
}

// reason finds why a test was skipped in what it has said: "    file_test.go:12: the reason", and test's own lines.
func reason(said *bytes.Buffer) string {
	if said == nil {
		return ""
	}
	for line := range strings.Lines(said.String()) {
		if _, why, found := strings.Cut(strings.TrimSpace(line), "_test.go:"); found {
			_, why, _ = strings.Cut(why, ": ")
			return why
		}
	}
	return ""
}
