package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/abi"
)

const (
	jsonMedia = "application/json"
	piece     = 256 << 10 // bytes of an answer that a client has to take in time
)

// response gives the client writeTimeout for each piece of an answer. A larger
// piece of memory is reserved until the client has taken it.
type response struct {
	http.ResponseWriter
	status  int                                     // 0: the answer has not begun
	reserve func(n int) (release func(), err error) // nil: nothing is
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

// Write sends p in pieces. If there is no room for it, it sends nothing.
func (w *response) Write(p []byte) (n int, err error) {
	if len(p) > piece && w.reserve != nil {
		release, err := w.reserve(len(p))
		if err != nil {
			return 0, err
		}
		defer release()
	}
	return w.write(p)
}

func (w *response) write(p []byte) (n int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
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

// FlushError sends what was written. It is for http.ResponseController.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend gives the client a new deadline.
func (w *response) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// send answers with a body. The error is that there is no room for it; then
// nothing was sent.
func (w *response) send(status int, media string, body []byte) error {
	if len(body) > piece && w.reserve != nil {
		release, err := w.reserve(len(body))
		if err != nil {
			return err
		}
		defer release()
	}

	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.write(body) // what fails here is a client that is gone
	return nil
}

// encode returns v as JSON and a line end, without the escapes for HTML. The
// value of a result is copied as it is: it was checked when the tool returned it.
func encode(v any) ([]byte, error) {
	result, ok := v.(abi.Result)
	value := result.Value
	if result.Value = nil; ok {
		v = result
	}

	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil || len(value) == 0 {
		return b.Bytes(), err
	}

	kind, rest := b.Bytes()[:len(`{"kind":""`)+len(result.Kind)], b.Bytes()[len(`{"kind":""`)+len(result.Kind):]
	return slices.Concat(kind, []byte(`,"value":`), value, rest), nil
}
