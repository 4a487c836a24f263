// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what is shown of the results: the summary on the terminal, and the part of the document that they write.

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/jobmesh/jobmesh/test/cluster"
)

func printSummary(w io.Writer, results []*result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "KUBERNETES\tRESULT\tPASSED\tFAILED\tSKIPPED\tSECONDS\tPORT-FORWARD\tBY CREATE\tBY GET\tEXEC\tBY CREATE\tBY GET")
	for _, r := range results {
		verdict := "pass"
		if !r.passed() {
			verdict = "FAIL"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%.0f", r.release, verdict, r.tests["pass"], r.tests["fail"], r.tests["skip"],
			r.took.Round(time.Second).Seconds())
		for _, c := range columns[:6] {
			_, _ = fmt.Fprint(table, "\t"+cmp.Or(r.facts[c.fact], "?"))
		}
		_, _ = fmt.Fprintln(table)
	}
	_ = table.Flush()
	for _, r := range results {
		for _, line := range r.skips() {
			_, _ = fmt.Fprintln(w, "skipped on", line)
		}
	}
}

// columns are the headings of the table and the facts below them.
var columns = []struct{ heading, fact string }{
	{"port-forward, `create` and `get`", "portforward/create+get"},
	{"`create` alone", "portforward/create"},
	{"`get` alone", "portforward/get"},
	{"exec, `create` and `get`", "exec/create+get"},
	{"`create` alone", "exec/create"},
	{"`get` alone", "exec/get"},
	{"native sidecars", cluster.NativeSidecars.Gate()},
	{"`restartPolicyRules`", cluster.RestartRules.Gate()},
}

// head is the head of the table.
func head() string {
	cells := []string{"Kubernetes"}
	for _, c := range columns {
		cells = append(cells, c.heading)
	}
	return "| " + strings.Join(cells, " | ") + " |\n|" + strings.Repeat("---|", len(cells)) + "\n"
}

// row is the release's line of the table.
func (r *result) row() string {
	cells := []string{r.release}
	for _, c := range columns {
		cells = append(cells, cmp.Or(r.facts[c.fact], "?"))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// skips are the release's lines of the list, without their bullets.
func (r *result) skips() []string {
	var lines []string
	for _, test := range slices.Sorted(maps.Keys(r.skipped)) {
		lines = append(lines, fmt.Sprintf("%s: `%s`: %s", r.release, test, cmp.Or(r.skipped[test], "no reason given")))
	}
	return lines
}

// The lines between which the document is written.
const (
	begin     = "<!-- begin of what `make test-compat ARGS=-update` writes -->\n"
	end       = "<!-- end of what `make test-compat ARGS=-update` writes -->\n"
	skipsHead = "\nTests that were skipped:\n\n"
)

// compatibility is the document.
type compatibility struct {
	before, after []byte
	rows          map[string]string   // of releases
	skips         map[string][]string // of releases
}

func parseDocument(text []byte) (*compatibility, error) {
	d := &compatibility{rows: map[string]string{}, skips: map[string][]string{}}
	before, rest, found := bytes.Cut(text, []byte(begin))
	body, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, errors.New("the two lines are missing between which the table stands")
	}
	d.before, d.after = before, after
	for line := range strings.Lines(string(body)) {
		if row, isRow := strings.CutPrefix(line, "| "); isRow && !strings.HasPrefix(line, "| Kubernetes ") {
			release, _, _ := strings.Cut(row, " ")
			d.rows[release] = line
		}
		if item, isItem := strings.CutPrefix(line, "- "); isItem {
			release, _, _ := strings.Cut(item, ":")
			d.skips[release] = append(d.skips[release], strings.TrimSuffix(item, "\n"))
		}
	}
	for release := range d.rows {
		if _, err := version.ParseSemantic(release); err != nil {
			return nil, fmt.Errorf("a row of the table: %w", err)
		}
	}
	return d, nil
}

// releases are those of the table, the oldest first.
func (d *compatibility) releases() []string {
	return slices.SortedFunc(maps.Keys(d.rows), func(a, b string) int {
		if version.MustParseSemantic(a).LessThan(version.MustParseSemantic(b)) {
			return -1
		}
		return 1
	})
}

func (d *compatibility) set(r *result) {
	d.rows[r.release] = r.row()
	d.skips[r.release] = r.skips()
}

func (d *compatibility) bytes() []byte {
	var skips []string
	var out bytes.Buffer
	out.Write(d.before)
	out.WriteString(begin + head())
	for _, release := range d.releases() {
		out.WriteString(d.rows[release])
		for _, line := range d.skips[release] {
			skips = append(skips, "- "+line+"\n")
		}
	}
	if len(skips) > 0 {
		out.WriteString(skipsHead + strings.Join(skips, ""))
	}
	out.WriteString(end)
	out.Write(d.after)
	return out.Bytes()
}
