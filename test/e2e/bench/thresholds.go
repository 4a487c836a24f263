// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what has to be reached.

package main

import (
	_ "embed"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed thresholds.yaml
var thresholdsFile []byte

type thresholds struct {
	Job struct {
		OfDraining  float64 `json:"ofDraining"`
		OfNoSidecar float64 `json:"ofNoSidecar"`
	} `json:"job"`
	Attempt struct {
		Milliseconds float64 `json:"milliseconds"`
	} `json:"attempt"`
	Burst struct {
		OfDraining float64 `json:"ofDraining"`
	} `json:"burst"`
}

func readThresholds() (thresholds, error) {
	var t thresholds
	err := yaml.UnmarshalStrict(thresholdsFile, &t)
	return t, err
}

// threshold is one of them beside what was measured.
type threshold struct {
	What, Want, Got string
	Met             bool
}

func (r *report) judge(limits thresholds) {
	most := func(what, format string, got, limit float64) {
		r.Thresholds = append(r.Thresholds, threshold{what, "at most " + fmt.Sprintf(format, limit), fmt.Sprintf(format, got), got > 0 && got <= limit})
	}
	most("app seen terminated → Job finished, against a native sidecar that drains", "%.2f ×", r.row(jobMesh).JobOfDraining, limits.Job.OfDraining)
	most("app seen terminated → Job finished, against no sidecar", "%.2f ×", r.row(jobMesh).JobOfNone, limits.Job.OfNoSidecar)
	most("one attempt, median", "%.0f ms", 1000*r.Attempt.Median, limits.Attempt.Milliseconds)
	if burst := r.burstRow(jobMesh); burst != nil {
		most("burst: first app's end → Job finished, against native sidecars that drain", "%.2f ×", burst.OfDraining, limits.Burst.OfDraining)
		r.Thresholds = append(r.Thresholds, threshold{"burst: pods reaped", fmt.Sprintf("all %d", burst.Pods), fmt.Sprint(burst.Reaped), burst.Reaped == burst.Pods})
	}
}

// missed returns an error that names the thresholds that were missed, or nil.
func (r *report) missed() error {
	var errs []error
	for _, t := range r.Thresholds {
		if !t.Met {
			errs = append(errs, fmt.Errorf("missed: %s is %s, want %s", t.What, t.Got, t.Want))
		}
	}
	return errors.Join(errs...)
}
