package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fair"
)

const (
	jsonMedia = "application/json"
	piece     = 256 << 10 // bytes of an answer that a client has to take in time
)

// response gives the client writeTimeout for each piece of an answer. A larger
// piece of memory counts as unread until the client has taken it.
type response struct {
	http.ResponseWriter
	status   int       // 0: the answer has not begun
	extended time.Time // when the client got its last deadline
	unread   *fair.Pool
	client   string // whose unread bytes they are
	receipts []func(delivered bool)
	err      error // of the first write that failed
}

// settle says whether the answer was delivered: whether all of it has left this process
// while the client was there.
func (w *response) settle(ctx context.Context) {
	if len(w.receipts) == 0 {
		return
	}
	delivered := w.status != 0 && ctx.Err() == nil && w.err == nil && w.FlushError() == nil
	for _, settle := range w.receipts {
		settle(delivered)
	}
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
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
			w.err = cmp.Or(w.err, err)
			return n, err
		}
	}
}

// FlushError sends what was written. It is for http.ResponseController.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend gives the client a new deadline, at most once a second: it costs about as
// much as a small answer.
func (w *response) extend() {
	if now := time.Now(); now.Sub(w.extended) >= time.Second {
		w.extended = now
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(writeTimeout))
	}
}

// send answers with a body, which may come in parts.
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
			return // the client is gone
		}
	}
}

// encode returns v as JSON and a line end, without the escapes for HTML. The value
// of a result is a part by itself, as it is: it was checked when the tool returned
// it, and may be large.
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
