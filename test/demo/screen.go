// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds how the demo writes: lines, headings, colours where a terminal shows them.

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen writes for a person.
type screen struct {
	out    io.Writer
	colour bool
	lost   func() // called when nobody reads any more
}

func newScreen(out *os.File, lost func()) *screen {
	_, refused := os.LookupEnv("NO_COLOR")
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: out, colour: terminal && !refused, lost: lost}
}

func (s *screen) Write(text []byte) (int, error) {
	n, err := s.out.Write(text)
	if err != nil {
		s.lost()
	}
	return n, err
}

func (s *screen) linef(format string, args ...any) {
	_, _ = fmt.Fprintf(s, format+"\n", args...)
}

// heading begins an act.
func (s *screen) heading(text string) {
	s.linef("\n%s\n", s.paint("1", "== "+text))
}

// command shows what a person would type.
func (s *screen) command(text string) { s.linef("%s", s.paint("1;36", "$ "+text)) }

// block writes several lines, indented.
func (s *screen) block(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		s.linef("    %s", strings.TrimRight(line, "\n"))
	}
}

func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) good(text string) string  { return s.paint("32", text) }
func (s *screen) bad(text string) string   { return s.paint("1;31", text) }
func (s *screen) faint(text string) string { return s.paint("2", text) }

// step tells of a step of the preparations that took a while.
func (s *screen) step(began time.Time, text string) {
	s.linef("  %7s  %s", seconds(time.Since(began)), text)
}

// seconds is how the demo writes durations.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
