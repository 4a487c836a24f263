// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds what a proxy double does when it is asked to quit: one table, one line of meaning each.

package simnode

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The names of the behaviours, for ProxyScript.
const (
	BehaviourExit        = "exit"         // answers 200 and exits 0 at once, as pilot-agent does from 1.26
	BehaviourDrain       = "drain"        // answers 200, drains, then exits 0, as pilot-agent does up to 1.25
	BehaviourPanic       = "panic"        // closes without a reply and stays, as from 1.26 before Envoy is created
	BehaviourRefuse      = "refuse"       // has not opened its port yet
	BehaviourHang        = "hang"         // accepts, reads and never answers
	BehaviourReset       = "reset"        // resets the connection after the request and stays
	BehaviourNeverExits  = "never-exits"  // answers 200 and stays
	BehaviourExit1       = "exit-1"       // answers 200 and exits 1
	BehaviourHugeBody    = "huge-body"    // answers 200 with a body that never ends, and stays
	BehaviourHugeHeaders = "huge-headers" // answers with headers that never end, and stays
	BehaviourSlowDrip    = "slow-drip"    // answers 200 one byte a second, for ever, and stays
	BehaviourGarbage     = "garbage"      // answers with bytes that are no HTTP, and stays
	BehaviourServerError = "server-error" // answers 500 and stays
	BehaviourRedirect    = "redirect"     // answers 307 to another port of the Pod, and stays
	BehaviourNoReply     = "no-reply"     // exits 0 before its reply is sent: EOF, but it did quit
	BehaviourResetExit   = "reset-exit"   // resets the connection and exits 0

	// What no agent does, and whoever listens in its place may. All of these stay.
	BehaviourSlowHeaders  = "slow-headers"  // answers one byte of its header at a time, ten a second, for ever
	BehaviourGzipBomb     = "gzip-bomb"     // answers 200 with a gzip body that grows a thousandfold, for ever
	BehaviourInterim      = "interim"       // answers 102 again and again
	BehaviourRedirectLoop = "redirect-loop" // answers 307 to the very same URL
	BehaviourNotFound     = "not-found"     // answers 404: an ordinary server that knows no such path
	BehaviourEscapes      = "escapes"       // answers 500 with terminal escapes in the status line and the body
	BehaviourErrorFlood   = "error-flood"   // is not reached: the runtime fills the error stream with 8 MiB of escapes
)

// escapes is what makes a terminal lie: a colour, a title, a cleared screen, a line break, a reordering mark.
const escapes = "\x1b[31m\x1b]0;owned\x07\x1b[2J\r\n\u202etxt.exe\u009b31m"

// behaviours maps a name to what follows the checks of the peer and the method.
var behaviours = map[string]func(d *double, w http.ResponseWriter){
	BehaviourExit:       func(d *double, w http.ResponseWriter) { accept(d, w); d.exit(0, 0) },
	BehaviourDrain:      func(d *double, w http.ResponseWriter) { accept(d, w); d.exit(0, d.drain) },
	BehaviourPanic:      func(*double, http.ResponseWriter) { panic(http.ErrAbortHandler) },
	BehaviourRefuse:     func(d *double, w http.ResponseWriter) { accept(d, w); d.exit(0, 0) },
	BehaviourHang:       func(d *double, w http.ResponseWriter) { raw(w, d.wait) },
	BehaviourReset:      func(_ *double, w http.ResponseWriter) { raw(w, reset) },
	BehaviourNeverExits: func(d *double, w http.ResponseWriter) { accept(d, w) },
	BehaviourExit1:      func(d *double, w http.ResponseWriter) { accept(d, w); d.exit(1, 0) },
	BehaviourHugeBody: func(_ *double, w http.ResponseWriter) {
		endless(w, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", strings.Repeat("O", 4096))
	},
	BehaviourHugeHeaders: func(_ *double, w http.ResponseWriter) {
		endless(w, "HTTP/1.1 200 OK\r\n", "X-Padding: "+strings.Repeat("x", 1024)+"\r\n")
	},
	BehaviourSlowDrip: func(d *double, w http.ResponseWriter) {
		raw(w, func(conn net.Conn) {
			for _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err == nil && d.sleep(time.Second); {
				_, err = io.WriteString(conn, "O")
			}
		})
	},
	BehaviourGarbage: func(_ *double, w http.ResponseWriter) {
		raw(w, func(conn net.Conn) { _, _ = io.WriteString(conn, "\x15\x03\x01\x00\x02\x02\x16 no HTTP\r\n\r\n") })
	},
	BehaviourServerError: func(_ *double, w http.ResponseWriter) {
		http.Error(w, "the sidecar says: <b>no</b>", http.StatusInternalServerError)
	},
	BehaviourRedirect: func(_ *double, w http.ResponseWriter) {
		w.Header().Set("Location", "http://localhost:15000/quitquitquit")
		w.WriteHeader(http.StatusTemporaryRedirect)
	},
	BehaviourSlowHeaders: func(d *double, w http.ResponseWriter) {
		raw(w, func(conn net.Conn) {
			for _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX"); err == nil && d.sleep(100*time.Millisecond); {
				_, err = io.WriteString(conn, "-")
			}
		})
	},
	BehaviourGzipBomb: func(_ *double, w http.ResponseWriter) {
		var bomb bytes.Buffer
		packer, _ := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
		_, _ = packer.Write(make([]byte, 1<<20))
		_ = packer.Close()
		// A gzip stream may hold many members, one after the other.
		endless(w, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", bomb.String())
	},
	BehaviourInterim: func(_ *double, w http.ResponseWriter) {
		endless(w, "", "HTTP/1.1 102 Processing\r\n\r\n")
	},
	BehaviourRedirectLoop: func(_ *double, w http.ResponseWriter) {
		w.Header().Set("Location", "/quitquitquit")
		w.WriteHeader(http.StatusTemporaryRedirect)
	},
	BehaviourNotFound: func(_ *double, w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) },
	BehaviourEscapes: func(_ *double, w http.ResponseWriter) {
		raw(w, func(conn net.Conn) {
			line := strings.NewReplacer("\r", "", "\n", "").Replace(escapes)
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 500 %s\r\n\r\n%s", line, escapes)
		})
	},
	BehaviourErrorFlood: func(*double, http.ResponseWriter) { panic(http.ErrAbortHandler) },

	BehaviourNoReply:   func(d *double, w http.ResponseWriter) { raw(w, func(net.Conn) { d.exit(0, 0) }) },
	BehaviourResetExit: func(d *double, w http.ResponseWriter) { raw(w, func(conn net.Conn) { reset(conn); d.exit(0, 0) }) },
}

// Behaviours lists the names that ProxyScript may use.
func Behaviours() []string { return slices.Sorted(maps.Keys(behaviours)) }

// accept answers as pilot-agent does, and sends it before anything else happens.
func accept(d *double, w http.ResponseWriter) {
	d.pod.fleet.counters.accepted.Add(1)
	w.Header().Set("Content-Length", "2")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, "OK")
	_ = http.NewResponseController(w).Flush()
}

// raw takes the connection over, and closes it after use.
func raw(w http.ResponseWriter, use func(net.Conn)) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	use(conn)
}

// reset makes the close of conn a TCP reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*doubleConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// errFlooded is what the runtime says instead of forwarding to a Pod of BehaviourErrorFlood.
var errFlooded = errors.New(strings.Repeat(escapes, 8<<20/len(escapes)))

// endless writes first, then repeats again until the peer has gone.
func endless(w http.ResponseWriter, first, again string) {
	raw(w, func(conn net.Conn) {
		buffer := bufio.NewWriter(conn)
		for _, err := buffer.WriteString(first); err == nil; {
			_, err = buffer.WriteString(again)
		}
	})
}
