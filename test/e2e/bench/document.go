// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file writes the document and its pictures.

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed performance.md.tmpl
var documentText string

var document = template.Must(template.New("performance.md").Funcs(template.FuncMap{
	"s":  func(seconds float64) string { return fmt.Sprintf("%.2f", seconds) },
	"ms": milliseconds,
	"x":  func(ratio float64) string { return fmt.Sprintf("%.2f", ratio) },
	"met": func(met bool) string {
		if met {
			return "met"
		}
		return "**missed**"
	},
	"sum": func(values []float64) (sum float64) {
		for _, v := range values {
			sum += v
		}
		return sum
	},
	"sub": func(a, b float64) float64 { return a - b },
	"row": func(r *report, key string) *row { return r.row(key) }, "burst": func(r *report, key string) *burstRow { return r.burstRow(key) },
	"mean": func(h histogram) float64 { return h.Sum / float64(max(h.Count, 1)) },
}).Parse(documentText))

// milliseconds keeps one decimal where there is no other digit to speak of.
func milliseconds(seconds float64) string {
	if ms := seconds * 1000; ms < 9.95 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", seconds*1000)
}

// Title is what tables call a kind.
func (k kind) Title() string {
	if k.key == jobMesh {
		return "**" + k.title + "**"
	}
	return k.title
}

// Detail says what is special about it.
func (k kind) Detail() string { return k.detail }

// Busy says that the machine had other work, which makes every figure worse.
func (r *report) Busy() bool { return r.Load > 1.5*float64(r.Machine.CPUs) }

// HasStages says that the logs told where the time went.
func (r *report) HasStages() bool { return len(r.row(jobMesh).Stages) == len(stages) }

func (r *report) write(docs string) error {
	var text strings.Builder
	if err := document.Execute(&text, r); err != nil {
		return err
	}
	files := map[string]string{"performance.md": text.String(), "images/performance-jobs.svg": r.jobsPicture()}
	if len(r.BurstRows) > 0 {
		files["images/performance-burst.svg"] = r.burstPicture()
	}
	if r.HasStages() {
		files["images/performance-stages.svg"] = drawStages("Where the time goes",
			fmt.Sprintf("From the end of the app's process to the end of the Job, medians of %d Jobs each", r.Jobs), r.Rows)
	}
	if err := os.MkdirAll(filepath.Join(docs, "images"), 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(docs, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) jobsPicture() string {
	var strips []strip
	for _, one := range r.Rows {
		strips = append(strips, strip{one.kind, one.Job})
	}
	return drawStrips("How soon a Job ends after its app",
		fmt.Sprintf("App seen terminated → Job finished. A dot is one of %d Jobs, the box holds the middle half, the line is the median", r.Jobs), strips)
}

func (r *report) burstPicture() string {
	var strips []strip
	for _, one := range r.BurstRows {
		strips = append(strips, strip{one.kind, one.Job})
	}
	return drawStrips(fmt.Sprintf("%d pods at once", r.Bursts[0].Pods),
		fmt.Sprintf("First app seen terminated → Job finished. A dot is one of %d Jobs, the line is the median", r.BurstRounds), strips)
}
