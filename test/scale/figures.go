// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the arithmetic: quantiles, rates, and a line through points.

package main

import (
	"maps"
	"math"
	"slices"
	"time"
)

// quantile interpolates between the two nearest of the sorted values; of none it is NaN.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

func medianOf[T any](all []T, figure func(T) float64) float64 {
	return quantile(sortedBy(all, figure), .5)
}

func sortedBy[T any](all []T, figure func(T) float64) []float64 {
	values := make([]float64, 0, len(all))
	for _, one := range all {
		values = append(values, figure(one))
	}
	slices.Sort(values)
	return values
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

func mapValues[K comparable](m map[K]float64) []float64 { return slices.Collect(maps.Values(m)) }

func maxOf[T any](all []T, figure func(T) float64) float64 {
	most := math.Inf(-1)
	for _, one := range all {
		most = max(most, figure(one))
	}
	return most
}

// steadyRate is how many things a second happened in the steady middle: between the first tenth and the last of those that
// happened after from. Of fewer than ten it is NaN.
func steadyRate(moments []time.Time, from time.Time) float64 {
	var seconds []float64
	for _, t := range moments {
		if t.After(from) {
			seconds = append(seconds, t.Sub(from).Seconds())
		}
	}
	if len(seconds) < 10 {
		return math.NaN()
	}
	slices.Sort(seconds)
	first, last := len(seconds)/10, len(seconds)-1-len(seconds)/10
	return float64(last-first) / (seconds[last] - seconds[first])
}

// line is the line through points that is nearest to them: y = at + slope × x.
type line struct {
	at, slope float64
	// margin is half of the slope's 95 % confidence interval.
	margin float64
}

// fit is ordinary least squares. Of fewer than three points everything is NaN.
func fit(x, y []float64) line {
	n := float64(len(x))
	if len(x) < 3 {
		return line{math.NaN(), math.NaN(), math.NaN()}
	}
	var sumX, sumY float64
	for i := range x {
		sumX += x[i]
		sumY += y[i]
	}
	meanX, meanY := sumX/n, sumY/n
	var squares, products float64
	for i := range x {
		squares += (x[i] - meanX) * (x[i] - meanX)
		products += (x[i] - meanX) * (y[i] - meanY)
	}
	l := line{slope: products / squares}
	l.at = meanY - l.slope*meanX
	var residual float64
	for i := range x {
		r := y[i] - l.at - l.slope*x[i]
		residual += r * r
	}
	// Student's t is 2 for 60 degrees of freedom, and close to it for all that occur here.
	l.margin = 2 * math.Sqrt(residual/(n-2)/squares)
	return l
}
