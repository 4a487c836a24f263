// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Command envoy stands in for Envoy under the real pilot-agent, which needs of it: a version, the admin API on loopback with
// the statistics that it reads, the health port, and a clean end.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	adminAddress  = "127.0.0.1:15000"
	healthAddress = ":15021"

	// version has the form that the agent parses.
	version = "envoy  version: 0000000000000000000000000000000000000000/1.37.0/Clean/RELEASE/BoringSSL"
)

// statistics are those that the agent asks for: its readiness, and whether connections are open. One always is, so that an
// agent told to drain until there is none would never end.
var statistics = []string{
	"cluster_manager.cds.update_success: 1",
	"listener_manager.lds.update_success: 1",
	"listener_manager.workers_started: 1",
	"listener.0.0.0.0_8080.downstream_cx_active: 1",
	"server.state: 0",
}

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		fmt.Println(version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	admin := http.NewServeMux()
	admin.HandleFunc("/ready", say("LIVE"))
	admin.HandleFunc("/stats", say(strings.Join(statistics, "\n")))
	admin.HandleFunc("/", say("OK"))
	admin.HandleFunc("POST /quitquitquit", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "OK")
		time.AfterFunc(50*time.Millisecond, stop) // the answer goes first
	})
	health := http.NewServeMux()
	health.HandleFunc("/healthz/ready", say(""))

	for address, handler := range map[string]http.Handler{adminAddress: admin, healthAddress: health} {
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(address, handler))
			os.Exit(1)
		}()
	}
	<-ctx.Done()
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, text) }
}
