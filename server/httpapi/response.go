package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fair"
)

const (
	jsonMedia = "application/json"
	piece     = 256 << 10 // bytes of a response that a client must read within writeTimeout
)

// response gives the client writeTimeout to read each piece of a response. A larger
// buffer counts as unread until the client has read it.
type response struct {
	http.ResponseWriter
	status   int       // 0 until the response begins
	extended time.Time // when the deadline was last extended
	unread   *fair.Pool
	client   string // the client that the unread bytes count for
}

// Unwrap implements the interface that http.ResponseController uses.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the status.
func (w *response) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write sends p in pieces.
func (w *response) Write(p []byte) (n int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if len(p) > piece {
		w.unread.Overdraw(w.client, len(p))
		defer w.unread.Give(w.client, len(p))
	}

	for {
		part := p[n:min(len(p), n+piece)]
		w.extend()
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError sends buffered data. http.ResponseController calls it.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend extends the client's deadline, at most once a second: it costs about as much as
// a small response.
func (w *response) extend() {
	if now := time.Now(); now.Sub(w.extended) >= time.Second {
		w.extended = now
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(writeTimeout))
	}
}

// send sends a response whose body may have several parts.
func (w *response) send(status int, media string, body ...[]byte) {
	size := 0
	for _, part := range body {
		size += len(part)
	}

	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	for _, part := range body {
		if _, err := w.Write(part); err != nil {
			return // the client has disconnected
		}
	}
}

// encode returns v as JSON with a final line break, without HTML escapes. The value of a
// result is a part of its own and is not encoded again: it was checked when the tool
// returned it, and may be large.
func encode(v any) ([][]byte, error) {
	result, ok := v.(abi.Result)
	value := result.Value
	if result.Value = nil; ok {
		v = result
	}

	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil || len(value) == 0 {
		return [][]byte{b.Bytes()}, err
	}

	kind := len(`{"kind":""`) + len(result.Kind)
	rest := bytes.Clone(b.Bytes()[kind:])
	return [][]byte{append(b.Bytes()[:kind], `,"value":`...), value, rest}, nil
}
