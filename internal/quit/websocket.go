// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// WebSocket as a transport: an http.RoundTripper whose 101 carries the connection in its body, as that of net/http does for
// other upgrades, so that authentication wraps both alike.

package quit

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// closeWait bounds how long saying goodbye may take.
const closeWait = time.Second

// webSocketTransport upgrades requests to WebSocket. It is safe for concurrent use.
type webSocketTransport struct {
	dialer websocket.Dialer
}

// RoundTrip implements http.RoundTripper. The subprotocol travels in the request's header.
func (t *webSocketTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	u := *req.URL
	switch u.Scheme {
	case "https":
		u.Scheme = "wss"
	default:
		u.Scheme = "ws"
	}
	conn, resp, err := t.dialer.DialContext(req.Context(), u.String(), req.Header)
	if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
		return resp, nil // an answer, and it is no
	}
	if err != nil {
		return nil, err
	}
	resp.Body = &webSocketBody{Conn: conn}
	return resp, nil
}

// webSocketBody makes one stream of a connection's binary messages. [websocket.Conn.NextReader] still gives single messages.
type webSocketBody struct {
	*websocket.Conn
	message io.Reader
}

func (b *webSocketBody) Read(p []byte) (int, error) {
	for {
		if b.message == nil {
			message, err := b.next()
			if err != nil {
				return 0, err
			}
			b.message = message
		}
		n, err := b.message.Read(p)
		if err == io.EOF {
			b.message, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

// next returns the next binary message.
func (b *webSocketBody) next() (io.Reader, error) {
	kind, message, err := b.NextReader()
	switch {
	case websocket.IsCloseError(err, websocket.CloseNormalClosure):
		return nil, io.EOF
	case err != nil:
		return nil, err
	case kind != websocket.BinaryMessage:
		return nil, errors.New("a message that is not binary")
	}
	return message, nil
}

func (b *webSocketBody) Write(p []byte) (int, error) {
	if err := b.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close says goodbye, without which the API server logs an abnormal closure, and closes the connection.
func (b *webSocketBody) Close() error {
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = b.WriteControl(websocket.CloseMessage, goodbye, time.Now().Add(closeWait))
	return b.Conn.Close()
}
