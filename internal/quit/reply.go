// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// The reply: the status of an HTTP/1.x response that a tenant's container wrote, and nothing else of it.

package quit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxReplyHeaderBytes bounds what is read of a reply: the header, with all interim responses. The body is never
	// read, so neither its length, its encoding nor its pace matters.
	maxReplyHeaderBytes = 16 << 10
	// maxInterimReplies bounds how many 1xx responses may come before the reply.
	maxInterimReplies = 4
)

var (
	// errNoReply: the stream ended before a whole reply header came.
	errNoReply = errors.New("the stream ended without an answer")

	errNotHTTP       = errors.New("the status port answered with something that is not HTTP/1")
	errLongHeader    = fmt.Errorf("the status port answered with a header of more than %d bytes", maxReplyHeaderBytes)
	errInterimReply  = fmt.Errorf("the status port answered with more than %d interim responses", maxInterimReplies)
	httpVersionStart = []byte("HTTP/1.")
)

// readReply reads from r until the header of the final reply is complete and returns its status code. Errors but errNoReply
// mean that whatever answered is not the agent.
func readReply(r io.Reader) (int, error) {
	var got []byte
	chunk := make([]byte, 1024)
	for interim, searched := 0, 0; ; {
		head, rest, whole := cutHeader(got, searched)
		if whole {
			status, err := parseStatus(head)
			if err != nil || status >= 200 || status == http.StatusSwitchingProtocols {
				return status, err
			}
			if interim++; interim > maxInterimReplies {
				return 0, errInterimReply
			}
			got, searched = rest, 0
			continue
		}
		if n := min(len(got), len(httpVersionStart)); !bytes.Equal(got[:n], httpVersionStart[:n]) {
			return 0, errNotHTTP
		}
		if len(got) >= maxReplyHeaderBytes {
			return 0, errLongHeader
		}
		searched = len(got)
		n, err := r.Read(chunk[:min(len(chunk), maxReplyHeaderBytes-len(got))])
		got = append(got, chunk[:n]...)
		if n == 0 && err != nil {
			return 0, errNoReply
		}
	}
}

// cutHeader splits b after its first empty line, of which searched bytes are known to hold none.
func cutHeader(b []byte, searched int) (head, rest []byte, whole bool) {
	for i := max(0, searched-2); ; i++ { // an empty line is at most three bytes with the end of the line before
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return nil, nil, false
		}
		i += n
		for _, end := range []string{"\n\n", "\n\r\n"} {
			if bytes.HasPrefix(b[i:], []byte(end)) {
				return b[:i+len(end)], b[i+len(end):], true
			}
		}
	}
}

// parseStatus returns the status code of a whole header.
func parseStatus(head []byte) (int, error) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodPost})
	if err != nil || resp.ProtoMajor != 1 || resp.StatusCode < 100 || resp.StatusCode > 599 {
		return 0, errNotHTTP
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
