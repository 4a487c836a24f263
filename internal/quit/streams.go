// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// SPDY as far as an attempt needs it: open a few streams and send what there is to say in one write, then read frames,
// one after the other, in the caller's goroutine. Nothing is buffered but the text of the error stream, nothing decompressed,
// nothing runs beside; so a hostile peer finds nothing to exhaust, and nothing is left behind.

package quit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
)

// The streams of an attempt. A client's identifiers are odd and ascend.
const (
	errorStream  spdy.StreamId = 1
	dataStream   spdy.StreamId = 3 // of a port-forward
	stdoutStream spdy.StreamId = 3 // of an exec
	stderrStream spdy.StreamId = 5
)

const (
	// maxErrorTextBytes is what is read of the error stream; then it counts as ended.
	maxErrorTextBytes = 4 << 10
	// maxControlFrameBytes is far above any control frame of these servers.
	maxControlFrameBytes = 64 << 10
)

var errNotSPDY = errors.New("what came is not SPDY")

// prelude encodes frames into one write, so that opening the streams costs no round trip of its own. It is safe to send
// data before a stream is acknowledged: servers handle the frames of one stream in order.
func prelude(frames ...spdy.Frame) ([]byte, error) {
	var buf bytes.Buffer
	framer, err := spdy.NewFramer(&buf, nil)
	if err != nil {
		return nil, err
	}
	for _, frame := range frames {
		if err := framer.WriteFrame(frame); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// open is the frame that opens a stream of a type, with further headers.
func open(id spdy.StreamId, streamType string, headers ...string) spdy.Frame {
	h := http.Header{corev1.StreamType: {streamType}}
	for i := 0; i+1 < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	return &spdy.SynStreamFrame{StreamId: id, Headers: h}
}

// finish is the frame that says that nothing more will be sent on a stream.
func finish(id spdy.StreamId) spdy.Frame {
	return &spdy.DataFrame{StreamId: id, Flags: spdy.DataFlagFin}
}

// streamSet holds some of an attempt's streams. Others, which nobody opened, are not remembered.
type streamSet [stderrStream + 1]bool

func (s *streamSet) add(id spdy.StreamId) {
	if int(id) < len(s) {
		s[id] = true
	}
}

// streams reads the server's frames.
type streams struct {
	r *bufio.Reader
	w io.Writer // for pings

	opened streamSet // acknowledged by the server
	ended  streamSet
	// errorText is what came on the error stream, at most maxErrorTextBytes.
	errorText []byte
	// err is why no frame comes any more.
	err error

	// The rest of a data frame's payload that its reader has not taken yet.
	current spdy.StreamId
	left    int64
	last    bool // the stream ends with it
}

func newStreams(conn io.ReadWriter) *streams {
	return &streams{r: bufio.NewReader(conn), w: conn}
}

// hasEnded says that nothing more will come on a stream.
func (s *streams) hasEnded(id spdy.StreamId) bool {
	return s.ended[id] || s.err != nil
}

// awaitOpened takes frames until the server has acknowledged these streams. A container runtime's streaming server that finds the
// connection closed before it has done so leaves a goroutine behind for ever, one per attempt.
func (s *streams) awaitOpened(ids ...spdy.StreamId) {
	for _, id := range ids {
		for !s.opened[id] && s.next() {
		}
	}
}

// next takes one frame: the error stream's data is kept, data for other streams is left to be read or skipped by the
// next call, all else is dealt with. It returns false when there is none any more.
func (s *streams) next() bool {
	if s.err == nil {
		s.err = s.take()
	}
	return s.err == nil
}

func (s *streams) take() error {
	if err := s.skip(); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return err
	}
	first, flags := binary.BigEndian.Uint32(head[:4]), head[4]
	length := int64(binary.BigEndian.Uint32(head[4:]) & 0xffffff)
	if first&0x80000000 != 0 {
		return s.control(uint16(first>>16&0x7fff), spdy.ControlFrameType(first&0xffff), spdy.ControlFlags(flags), length)
	}
	s.current, s.left, s.last = spdy.StreamId(first), length, spdy.DataFlags(flags)&spdy.DataFlagFin != 0
	if s.current == errorStream {
		return s.keepErrorText()
	}
	if s.left == 0 {
		return s.skip()
	}
	return nil
}

// skip passes over what is left of the current data frame.
func (s *streams) skip() error {
	if s.left > 0 {
		n, err := io.CopyN(io.Discard, s.r, s.left)
		s.left -= n
		if err != nil {
			return err
		}
	}
	if s.last {
		s.ended.add(s.current)
		s.last = false
	}
	return nil
}

func (s *streams) keepErrorText() error {
	room := min(s.left, int64(maxErrorTextBytes-len(s.errorText)))
	text := make([]byte, room)
	n, err := io.ReadFull(s.r, text)
	s.errorText = append(s.errorText, text[:n]...)
	s.left -= int64(n)
	if err != nil {
		return err
	}
	if len(s.errorText) == maxErrorTextBytes {
		s.ended.add(errorStream)
	}
	return s.skip()
}

// control deals with a control frame. Headers in it are of no interest, so that they need not be decompressed.
func (s *streams) control(version uint16, kind spdy.ControlFrameType, flags spdy.ControlFlags, length int64) error {
	if version != spdy.Version || length > maxControlFrameBytes {
		return errNotSPDY
	}
	var id [4]byte
	switch kind {
	case spdy.TypeSynReply, spdy.TypeRstStream, spdy.TypePing:
		if length < int64(len(id)) {
			return errNotSPDY
		}
		if _, err := io.ReadFull(s.r, id[:]); err != nil {
			return err
		}
		length -= int64(len(id))
	default:
	}
	if _, err := io.CopyN(io.Discard, s.r, length); err != nil {
		return err
	}
	stream := spdy.StreamId(binary.BigEndian.Uint32(id[:]) & 0x7fffffff)
	switch kind {
	case spdy.TypeSynReply:
		s.opened.add(stream)
		if flags&spdy.ControlFlagFin != 0 {
			s.ended.add(stream)
		}
	case spdy.TypeRstStream:
		s.ended.add(stream)
	case spdy.TypePing:
		if stream%2 == 0 { // the server's, who waits for its echo
			_, err := s.w.Write(append([]byte{0x80, spdy.Version, 0, byte(spdy.TypePing), 0, 0, 0, 4}, id[:]...))
			return err
		}
	case spdy.TypeGoAway: // no new streams, which nobody wants; those that are open go on
	default:
	}
	return nil
}

// stream returns what comes on a stream as a reader. It ends with the stream or the connection, and also once the error
// stream has ended with text: then the other end has given up.
func (s *streams) stream(id spdy.StreamId) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		for {
			if s.current == id && s.left > 0 && s.err == nil {
				n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
				s.left -= int64(n)
				if err == nil && s.left == 0 {
					err = s.skip()
				}
				if err != nil {
					s.err = err
				}
				return n, nil
			}
			if s.hasEnded(id) || (s.ended[errorStream] && len(s.errorText) > 0) || !s.next() {
				return 0, io.EOF
			}
		}
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
