// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what has to be reached.

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed thresholds.yaml
var limitsFile []byte

// limit is what a figure must keep to. The bounds themselves are allowed.
type limit struct {
	AtLeast *float64 `json:"atLeast,omitempty"`
	AtMost  *float64 `json:"atMost,omitempty"`
	// All asks for as many as there are pods in a storm.
	All bool `json:"all,omitempty"`
	// Measured is what was seen, in words, for whoever changes a limit.
	Measured string `json:"measured"`
}

// limits are by scenario and by the figure's key.
type limits map[string]map[string]limit

func readLimits() (limits, error) {
	var l limits
	err := yaml.UnmarshalStrict(limitsFile, &l)
	return l, err
}

// figure is one thing that was measured.
type figure struct {
	Key   string // what the limits call it
	What  string
	Value float64
	Unit  string
}

// judged is a figure with its limit in words, "" where it has none.
type judged struct {
	figure
	Want string
	Met  bool
}

func (f figure) text() string { return format(f.Value, f.Unit) }

func format(value float64, unit string) string {
	var text string
	switch unit {
	case "", "pods":
		text = fmt.Sprintf("%.0f", value)
	case "MiB", "%", "pods/s":
		text = fmt.Sprintf("%.1f", value)
	default:
		text = fmt.Sprintf("%.2f", value)
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}

// judge holds the figures against the limits. A limit whose figure is missing is a missed one, and so is a figure that is no number.
func (r *report) judge(all limits) {
	mine := maps.Clone(all[r.Scenario])
	for _, f := range r.Figures {
		j := judged{figure: f, Met: true}
		if l, ok := mine[f.Key]; ok {
			j.Want, j.Met = l.judge(f, r.Pods)
			delete(mine, f.Key)
		}
		r.Judged = append(r.Judged, j)
	}
	for _, key := range slices.Sorted(maps.Keys(mine)) {
		r.Judged = append(r.Judged, judged{figure: figure{Key: key, What: "was not measured"}, Want: "a figure"})
	}
}

func (l limit) judge(f figure, pods int) (want string, met bool) {
	switch {
	case l.All:
		return fmt.Sprintf("all %d", pods), f.Value == float64(pods)
	case l.AtLeast != nil:
		return "at least " + format(*l.AtLeast, f.Unit), f.Value >= *l.AtLeast
	case *l.AtMost == 0:
		return "none", f.Value <= 0
	default:
		return "at most " + format(*l.AtMost, f.Unit), f.Value <= *l.AtMost
	}
}

// missed returns an error that names the limits that were missed, or nil.
func (r *report) missed() error {
	var failed []error
	for _, j := range r.Judged {
		if !j.Met {
			failed = append(failed, fmt.Errorf("missed: %s.%s: %s is %s, want %s", r.Scenario, j.Key, j.What, j.text(), j.Want))
		}
	}
	return errors.Join(failed...)
}
