// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The readers of hostile bytes, fed with any.

package quit

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\nOK", "HTTP/1.0 200\n\n", "HTTP/1.1 100 \r\n\r\nHTTP/1.1 403 No\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y\r\n",
		"HTTP/1.1 999 \r\n\r\n", "HTTP/1.1 -01 \r\n\r\n", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", strings.Repeat("HTTP/1.1 102 x\r\n\r\n", 9), "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 20000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		r := bytes.NewReader(reply)
		status, err := readReply(r)
		if read := len(reply) - r.Len(); read > maxReplyHeaderBytes*(maxInterimReplies+1) {
			t.Errorf("read %d bytes", read)
		}
		if err == nil && (status < 101 || status > 599 || (status < 200 && status != 101)) {
			t.Errorf("status %d", status)
		}
		// What comes in small pieces means what it means in one.
		again, againErr := readReply(iotest.OneByteReader(bytes.NewReader(reply)))
		if again != status || !errors.Is(againErr, err) {
			t.Errorf("%d, %v in one piece and %d, %v byte by byte", status, err, again, againErr)
		}
	})
}

func FuzzClassifyErrorText(f *testing.F) {
	for _, seed := range []string{refusedByContainerd, refusedByCRIO, refusedBySocat, resetText, sandboxGone, noNamespace, "", "\x00\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := classifyErrorText(text)
		switch got.outcome {
		case OutcomeRefused, OutcomeUnknown, OutcomeError:
		default:
			t.Errorf("outcome %s", got.outcome)
		}
		if got.err == nil || len(text) > 60 && strings.Contains(got.err.Error(), string(text)) {
			t.Errorf("error %v", got.err)
		}
	})
}

func FuzzStreams(f *testing.F) {
	f.Add([]byte("\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00\x03\x01\x00\x00\x02OK"))
	f.Add([]byte("\x00\x00\x00\x01\x01\x00\x00\x03dial\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x03\x00\x00\x00\x05"))
	f.Add([]byte("\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, frames []byte) {
		s := newStreams(&struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(frames), io.Discard})
		data, err := io.ReadAll(s.stream(dataStream))
		if err != nil || len(data) > len(frames) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		for !s.hasEnded(errorStream) && s.next() {
		}
		if len(s.errorText) > maxErrorTextBytes {
			t.Errorf("kept %d bytes of the error stream", len(s.errorText))
		}
	})
}
