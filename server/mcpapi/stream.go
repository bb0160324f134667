package mcpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// keepAliveInterval is the longest silence on a stream of events.
const keepAliveInterval = 15 * time.Second

// stream is an HTTP answer that sends a comment now and then, once it is a stream of
// events. Proxies close silent streams, and net/http may notice only by a write that
// a client has left.
//
// Each write is of whole events, so a comment falls between two.
type stream struct {
	http.ResponseWriter
	sem   chan struct{} // guards the rest and the answer; not a mutex, because a write waits for the client
	timer *time.Timer   // nil before the first event is flushed
	ended bool
}

var errGone = errors.New("the client is gone")

func newStream(w http.ResponseWriter) *stream {
	return &stream{ResponseWriter: w, sem: make(chan struct{}, 1)}
}

func (w *stream) lock()   { w.sem <- struct{}{} }
func (w *stream) unlock() { <-w.sem }

// Unwrap is for [http.ResponseController].
func (w *stream) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stream) Write(p []byte) (int, error) {
	w.lock()
	defer w.unlock()
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *stream) FlushError() error {
	w.lock()
	defer w.unlock()
	return w.flush()
}

// flush sends what was written, and delays the next comment. w is locked.
func (w *stream) flush() error {
	switch {
	case w.timer != nil:
		w.timer.Reset(keepAliveInterval)
	case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
		w.timer = time.AfterFunc(keepAliveInterval, func() { _ = w.send(": alive\n\n") })
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// sendMessage sends a message that does not come from the SDK.
func (w *stream) sendMessage(message []byte) error {
	return w.send("event: message\ndata: " + string(message) + "\n\n")
}

func (w *stream) send(text string) error {
	w.lock()
	defer w.unlock()
	if w.ended {
		return errGone
	}

	if _, err := io.WriteString(w.ResponseWriter, text); err != nil {
		return err
	}
	return w.flush()
}

// end returns when nothing is written any more.
func (w *stream) end() {
	w.lock()
	defer w.unlock()
	if w.ended = true; w.timer != nil {
		w.timer.Stop()
	}
}
