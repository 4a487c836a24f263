// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file writes what was measured: for a terminal, and into the document between the scenario's markers.

package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// report is one scenario's.
type report struct {
	Scenario, Title, About string
	Date                   time.Time
	Machine                machine
	// Load is the machine's load average before the scenario.
	Load    float64
	Pods    int
	Figures []figure
	Judged  []judged
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s (%s)\n", r.Title, r.Scenario)
	for _, j := range r.Judged {
		mark := "      "
		switch {
		case j.Want == "":
		case j.Met:
			mark = "met   "
		default:
			mark = "MISSED"
		}
		want := ""
		if j.Want != "" {
			want = " (" + j.Want + ")"
		}
		fmt.Fprintf(&b, "  %s %14s%s  %s\n", mark, j.text(), want, j.What)
	}
	return b.String()
}

// markdown is the scenario's part of the document.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| | | limit |\n|---|---|---|\n", r.About)
	for _, j := range r.Judged {
		value := j.text()
		switch {
		case j.Want == "":
		case j.Met:
			value = "**" + value + "**"
		default:
			value = "**" + value + ", missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", j.What, value, j.Want)
	}
	fmt.Fprintf(&b, "\nMeasured on %s: %s. The load average before it was %.1f.\n", r.Date.Format("2 January 2006"), r.Machine, r.Load)
	return b.String()
}

func (r *report) markers() (begin, end string) {
	return "<!-- scale:begin " + r.Scenario + " -->", "<!-- scale:end " + r.Scenario + " -->"
}

// writeTo replaces what is between the scenario's markers in a file.
func (r *report) writeTo(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	replaced, err := r.replaceIn(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(replaced), 0o644)
}

func (r *report) replaceIn(document string) (string, error) {
	begin, end := r.markers()
	before, rest, found := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the markers %s and %s are missing", begin, end)
	}
	return before + begin + "\n" + r.markdown() + end + after, nil
}
