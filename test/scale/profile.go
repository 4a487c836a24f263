// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file takes processor profiles, for whoever wants to know where the time of a slow run went (-profile).

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// profiled profiles the API server and, where it runs, the operator for some seconds from now on. The returned function waits for the end.
func (r *rig) profiled(ctx context.Context, name string) (wait func()) {
	const seconds = "8"
	var all sync.WaitGroup
	if !r.profile {
		return all.Wait
	}
	write := func(of string, profile []byte, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(r.logDir(), name+of+".pprof"), profile, 0o600)
		}
		if err != nil {
			r.say("no profile of the %s: %v", of, err)
		}
	}
	over, end := context.WithCancel(ctx)
	all.Go(func() { r.tellRequests(over) })
	all.Go(func() {
		profile, err := r.clients.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).DoRaw(ctx)
		write("apiserver", profile, err)
	})
	if p := r.running; p != nil && p.profile != "" {
		all.Go(func() {
			base, _, _ := strings.Cut(p.profile, "/heap")
			profile, err := get(ctx, base+"/profile?seconds="+seconds)
			write("operator", []byte(profile), err)
		})
	}
	return func() { end(); all.Wait() }
}

// tellRequests says every few seconds what the API server was asked, and how much processor time it has used.
func (r *rig) tellRequests(ctx context.Context) {
	before := map[string]float64{}
	for sleep(ctx, 5*time.Second) == nil {
		text, err := r.clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return
		}
		now, changes := map[string]float64{}, map[string]float64{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if number, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
				name, value = "processor", strings.TrimSpace(number)
			} else if !strings.HasPrefix(name, "apiserver_request_total{") {
				continue
			} else {
				name = strings.Join([]string{label(name, "verb"), label(name, "resource"), label(name, "subresource"), label(name, "code")}, " ")
			}
			number, _ := strconv.ParseFloat(value, 64)
			now[name] += number
		}
		for name, value := range now {
			if changed := value - before[name]; changed > 0 {
				changes[name] = changed
			}
		}
		if len(before) > 0 {
			r.say("API server, 5 s: %v", changes)
		}
		before = now
	}
}

func label(series, name string) string {
	_, rest, _ := strings.Cut(series, name+"=\"")
	value, _, _ := strings.Cut(rest, "\"")
	return value
}

// keepGoroutines writes what the goroutines do at the worst sample so far, where profiles are wanted.
func (p *process) keepGoroutines(s sample) {
	if p.goroutines == "" || s.excess() <= p.worst {
		return
	}
	p.worst = s.excess()
	base, _, _ := strings.Cut(p.profile, "/heap")
	if text, err := get(context.Background(), base+"/goroutine?debug=1"); err == nil {
		_ = os.WriteFile(p.goroutines, []byte(text), 0o600)
	}
}
