package mcpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// streamBeat is how long nothing is sent on a stream of events.
const streamBeat = 15 * time.Second

// beating is an answer that, once it is a stream of events, says now and then
// that the server is there. Nothing else may happen on a stream for hours, and a
// client that has sent more than its request is not seen to leave before it is
// written to: its stream would stay open, and hold its places, for ever.
//
// What is written at once is whole events, so that a sign of life may come
// between two of them.
type beating struct {
	http.ResponseWriter
	turn  chan struct{} // has room for who uses what follows, and the answer; no mutex, for a write waits for the client
	timer *time.Timer   // nil: it is no stream yet
	ended bool
}

func newBeating(w http.ResponseWriter) *beating {
	return &beating{ResponseWriter: w, turn: make(chan struct{}, 1)}
}

func (w *beating) lock()   { w.turn <- struct{}{} }
func (w *beating) unlock() { <-w.turn }

// Unwrap is for http.ResponseController.
func (w *beating) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *beating) WriteHeader(status int) {
	w.lock()
	defer w.unlock()
	if status >= 200 {
		w.keep()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *beating) Write(p []byte) (int, error) {
	w.lock()
	defer w.unlock()
	w.keep()
	return w.ResponseWriter.Write(p)
}

// keep has the next sign of life come later. It is w's turn.
func (w *beating) keep() {
	switch {
	case w.timer != nil:
		w.timer.Reset(streamBeat)
	case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
		w.timer = time.AfterFunc(streamBeat, w.beat)
	}
}

// FlushError is for http.ResponseController.
func (w *beating) FlushError() error {
	w.lock()
	defer w.unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// errGone is that an answer has ended.
var errGone = errors.New("the client is gone")

// event sends a message that the SDK does not know of on a stream that it has
// begun.
func (w *beating) event(message []byte) error {
	w.lock()
	defer w.unlock()
	if w.ended {
		return errGone
	}
	w.keep()
	if _, err := fmt.Fprintf(w.ResponseWriter, "event: message\ndata: %s\n\n", message); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// beat says that the server is there. If the client is not, net/http ends the
// request.
func (w *beating) beat() {
	w.lock()
	defer w.unlock()
	if w.ended {
		return
	}
	_, err := w.ResponseWriter.Write([]byte(": alive\n\n"))
	if err == nil && http.NewResponseController(w.ResponseWriter).Flush() == nil {
		w.timer.Reset(streamBeat)
	}
}

// end returns when nothing is written any more.
func (w *beating) end() {
	w.lock()
	defer w.unlock()
	if w.ended = true; w.timer != nil {
		w.timer.Stop()
	}
}
