// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file takes processor profiles, for whoever wants to know where the time of a slow run went (-profile).

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	return all.Wait
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
