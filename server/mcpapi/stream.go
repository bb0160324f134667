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

// stream is an HTTP answer that sends a comment now and then once it is a stream of
// events. Proxies close a silent stream, and net/http notices only by a write that
// a client has left which sent more than its request.
//
// Whoever writes at once writes whole events, so a comment falls between two.
type stream struct {
	http.ResponseWriter
	sem   chan struct{} // holds the fields below and the answer; not a mutex, because a write waits for the client
	timer *time.Timer   // nil: it is not a stream yet
	ended bool
}

// errGone says that the client takes no more.
var errGone = errors.New("the client is gone")

func newStream(w http.ResponseWriter) *stream {
	return &stream{ResponseWriter: w, sem: make(chan struct{}, 1)}
}

func (w *stream) lock()   { w.sem <- struct{}{} }
func (w *stream) unlock() { <-w.sem }

// Unwrap is for [http.ResponseController].
func (w *stream) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stream) WriteHeader(status int) {
	w.lock()
	defer w.unlock()
	if status >= 200 {
		w.postpone()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *stream) Write(p []byte) (int, error) {
	w.lock()
	defer w.unlock()
	w.postpone()
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *stream) FlushError() error {
	w.lock()
	defer w.unlock()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// postpone delays the next comment. w is locked.
func (w *stream) postpone() {
	switch {
	case w.timer != nil:
		w.timer.Reset(keepAliveInterval)
	case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
		w.timer = time.AfterFunc(keepAliveInterval, func() { _ = w.send(": alive\n\n") })
	}
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
	if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
		return err
	}
	w.postpone()
	return nil
}

// end returns when nothing is written any more.
func (w *stream) end() {
	w.lock()
	defer w.unlock()
	if w.ended = true; w.timer != nil {
		w.timer.Stop()
	}
}
