// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The results: a table that is printed at the end, and written into the documentation where that is asked for.

package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobmesh/jobmesh/test/controlplane"
)

// row is what one test saw.
type row struct {
	Fault, Effect, Test string
	Pods                int
	Held                time.Duration
	During              int  // pods reaped before the fault's end
	Outage              bool // no pod could be
	LastReap            time.Duration
	Quits, Most         int
	Calm                time.Duration
	Idle, Last          level
}

type table struct {
	mu   sync.Mutex
	rows []row
	// failovers are the rows of the second table: from the leader's end to the next quit.
	failovers []failover
}

// failover is one change of the leader.
type failover struct {
	Fault, Effect, Test string
	Next, Bound         time.Duration
}

var results table

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *table) addFailover(f failover) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failovers = append(t.failovers, f)
}

const (
	beginMark = "<!-- faults:begin -->"
	endMark   = "<!-- faults:end -->"
)

func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortFunc(t.rows, func(a, b row) int { return strings.Compare(a.Test, b.Test) })
	slices.SortFunc(t.failovers, func(a, b failover) int { return strings.Compare(a.Test, b.Test) })
	var out bytes.Buffer
	fmt.Fprintf(&out, "## Faults\n\nSeen in one run of `make test-faults` on Kubernetes %s, with %d cores. Each fault hits the operator's binary "+
		"while the apps of some 40 pods of Jobs finish; a quarter of them fail and are started again, so that a quit too early would show. "+
		"No quit was too early, and no pod was lost.\n\n", controlplane.Version, runtime.NumCPU())
	fmt.Fprintln(&out, "| fault | what happens | lasted | reaped meanwhile | last pod reaped, after its end | goroutines, before → after | open sockets, before → after | test |")
	fmt.Fprintln(&out, "|---|---|---|---|---|---|---|---|")
	for _, r := range t.rows {
		during := fmt.Sprintf("%d of %d", r.During, r.Pods)
		if r.Outage {
			during = "none"
		}
		fmt.Fprintf(&out, "| %s | %s | %.0f s | %s | %.1f s | %d → %d | %d → %d | `%s` |\n",
			r.Fault, r.Effect, r.Held.Seconds(), during, r.LastReap.Seconds(), r.Idle.goroutines, r.Last.goroutines, r.Idle.sockets, r.Last.sockets, r.Test)
	}
	fmt.Fprintln(&out, "\nWhat takes half a minute are the clients' own waits. A watch that finds no API server tries again after 1, 2, 4, … 30 s. A connection that "+
		"has gone silent is given up when a ping is not answered, 45 s after the last byte.")
	if len(t.failovers) > 0 {
		fmt.Fprintln(&out, "\nTwo replicas, one of which leads:\n\n| fault | what happens | next quit after | at most | test |\n|---|---|---|---|---|")
		for _, f := range t.failovers {
			fmt.Fprintf(&out, "| %s | %s | %.1f s | %.0f s | `%s` |\n", f.Fault, f.Effect, f.Next.Seconds(), f.Bound.Seconds(), f.Test)
		}
	}
	fmt.Fprintln(&out, "\nWithout a control plane, in `controllers`: the time of day is set an hour forward or back while a pod waits for the end of its grace "+
		"period, of a back-off, or of its proxy. What is waited for in real seconds is waited for, no less and no more (`TestTheClockJumps…`).")
	return out.String()
}

// report prints the table and, where write is set, replaces the one in the documentation.
func report(write bool) error {
	if len(results.rows)+len(results.failovers) == 0 {
		return nil
	}
	text := results.markdown()
	fmt.Println(text)
	if !write {
		return nil
	}
	path := filepath.Join(root, "docs", "reliability.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, found := bytes.Cut(page, []byte(beginMark))
	_, tail, ended := bytes.Cut(rest, []byte(endMark))
	if !found || !ended {
		return fmt.Errorf("%s lacks the marks %s and %s", path, beginMark, endMark)
	}
	return os.WriteFile(path, slices.Concat(head, []byte(beginMark+"\n"+text), []byte(endMark), tail), 0o644)
}
