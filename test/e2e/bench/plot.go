// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file draws: distributions as dots and boxes, and where the time goes as bars.

package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes in the pictures' own units.
const (
	width, left, right = 880.0, 220.0, 96.0
	rowHeight          = 54.0
)

// canvas is an SVG under construction. It brings its own background, so that it reads on a dark page too.
type canvas struct {
	strings.Builder
	height, scale float64
}

func newCanvas(title, subtitle string, rows int, top, most float64) *canvas {
	step := tick(most)
	end := math.Ceil(most/step) * step
	c := &canvas{height: top + float64(rows)*rowHeight + 46, scale: (width - left - right) / end}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">`+"\n",
		width, c.height, width, c.height)
	fmt.Fprintf(c, "<title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(c, `<rect x="0.5" y="0.5" width="%g" height="%g" rx="8" fill="#ffffff" stroke="#d0d7de"/>`+"\n", width-1, c.height-1)
	c.text(24, 34, 17, "#1f2328", "start", "600", title)
	c.text(24, 56, 12.5, "#59636e", "start", "400", subtitle)
	bottom := top + float64(rows)*rowHeight
	for at := 0.0; at <= end+step/2; at += step {
		x := c.x(at)
		fmt.Fprintf(c, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="#eaeef2"/>`+"\n", x, top-4, x, bottom)
		c.text(x, bottom+20, 12, "#59636e", "middle", "400", fmt.Sprintf("%g s", math.Round(at*100)/100))
	}
	return c
}

// tick is the distance of the lines of a scale.
func tick(most float64) float64 {
	for _, step := range []float64{.1, .2, .5, 1, 2, 5, 10, 20, 50, 100} {
		if most/step <= 9 {
			return step
		}
	}
	return 200
}

func (c *canvas) x(seconds float64) float64 { return left + seconds*c.scale }

func (c *canvas) text(x, y, size float64, color, anchor, weight, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" font-size="%g" fill="%s" text-anchor="%s" font-weight="%s">%s</text>`+"\n",
		x, y, size, color, anchor, weight, html.EscapeString(text))
}

func (c *canvas) rect(x, y, w, h float64, style string) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>`+"\n", x, y, max(w, 0), h, style)
}

func (c *canvas) name(y float64, k kind) {
	weight := "400"
	if k.key == jobMesh {
		weight = "700"
	}
	c.text(left-16, y-1, 14, "#1f2328", "end", weight, k.title)
	c.text(left-16, y+14, 11, "#59636e", "end", "400", k.detail)
}

func (c *canvas) svg() string { return c.String() + "</svg>\n" }

// strip is one line of a picture of distributions.
type strip struct {
	kind
	spread
}

// drawStrips shows every value as a dot, and the quartiles and the median of many as a box behind them.
func drawStrips(title, subtitle string, strips []strip) string {
	const top, enough = 80.0, 6
	most := 0.0
	for _, s := range strips {
		most = max(most, s.Max)
	}
	c := newCanvas(title, subtitle, len(strips), top, most)
	for i, s := range strips {
		y := top + (float64(i)+.5)*rowHeight
		c.name(y, s.kind)
		if s.N >= enough {
			c.rect(c.x(s.Q1), y-15, c.x(s.Q3)-c.x(s.Q1), 30, fmt.Sprintf(`rx="3" fill="%s" fill-opacity="0.16" stroke="%s" stroke-opacity="0.55"`, s.color, s.color))
		}
		for j, v := range s.All {
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3.4" fill="%s" fill-opacity="0.62"/>`+"\n", c.x(v), y+scatter(j, s.N), s.color)
		}
		c.rect(c.x(s.Median)-1.25, y-18, 2.5, 36, fmt.Sprintf(`rx="1.2" fill="%s"`, s.color))
		c.text(width-right+14, y+5, 14, s.color, "start", "700", fmt.Sprintf("%.2f s", s.Median))
	}
	return c.svg()
}

// scatter keeps dots of like value apart, by the golden ratio: it spreads evenly, and the same each time.
func scatter(i, n int) float64 {
	if n < 2 {
		return 0
	}
	_, f := math.Modf(float64(i+1) * 0.6180339887)
	return (f - .5) * 22
}

// drawStages shows the medians of what a Job's end is made of, as bars.
func drawStages(title, subtitle string, rows []row) string {
	const top = 108.0
	most := 0.0
	for _, r := range rows {
		sum := 0.0
		for _, s := range r.Stages {
			sum += s
		}
		most = max(most, sum)
	}
	c := newCanvas(title, subtitle, len(rows), top, most)
	x := 24.0
	for _, s := range stages {
		c.rect(x, 72, 12, 12, fmt.Sprintf(`rx="2" fill="%s"`, s.color))
		c.text(x+18, 82.5, 12.5, "#1f2328", "start", "400", s.title)
		x += 18 + 7.1*float64(len(s.title)) + 14
	}
	for i, r := range rows {
		y := top + (float64(i)+.5)*rowHeight
		c.name(y, r.kind)
		at := 0.0
		for j, s := range r.Stages {
			c.rect(c.x(at), y-15, c.x(at+s)-c.x(at), 30, fmt.Sprintf(`fill="%s"`, stages[j].color))
			if s*c.scale > 34 {
				color := "#1f2328"
				if j == 1 {
					color = "#ffffff"
				}
				c.text(c.x(at+s/2), y+4.5, 12, color, "middle", "400", fmt.Sprintf("%.2f", s))
			}
			at += s
		}
		c.text(width-right+14, y+5, 14, "#1f2328", "start", "700", fmt.Sprintf("%.2f s", at))
	}
	return c.svg()
}
