package mcpapi

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// keepAliveInterval is the longest time that an answer is silent. Clients and proxies give up
// after a minute or more.
const keepAliveInterval = 15 * time.Second

// stream is the HTTP response to one request. The SDK writes every response as a stream
// of events, one whole event at a time. This response differs from that in four ways:
//
//   - A response that is the only message is sent as application/json, which has no
//     limit on its size in any client. Python's SDK 2 loses events over 1 MiB.
//   - A stream that is silent for keepAliveInterval gets a comment. Proxies close
//     silent streams, and net/http may notice only by a write that a client has left.
//   - An event that only says where the stream begins waits for the next one, so that
//     a response can still be the only message.
//   - The stream of a request that its client has canceled ends without a response.
type stream struct {
	http.ResponseWriter
	resumable // the zero value cannot be resumed

	sem   chan struct{} // guards the rest and the response; not a mutex, because a write waits for the client
	timer *time.Timer   // nil before expect, and before the first event is flushed
	state streamState
	err   error  // error of the first failed write
	first string // event that waits for the next one

	answered bool   // the response was written
	largest  int    // bytes of the largest event
	begun    string // the SDK's id of the session that the request begins
	mark     mark   // mark of requests to the client; 0 keeps their ids as they are
}

// issue replaces, for the client, the id of the session that the request begins.
func (w *stream) issue(id, name string) {
	w.lock()
	defer w.unlock()
	if w.state == streamOpen {
		w.begun = id
		w.Header().Set(headerSession, name)
	}
}

// resumable lets a client resume a stream after its connection broke. Only streams of sessions
// that begin with initialize can be resumed.
type resumable struct {
	resumes bool                 // another response began the stream: it has no response of its own
	sent    func(eventID string) // called before an event with an id is sent
	alone   func(eventID string) // called after a response was sent as the only message, which cannot be resumed
}

type streamState int

const (
	streamOpen   streamState = iota // nothing was sent
	streamEvents                    // events or comments were sent
	streamWhole                     // the response is not a stream of events, or has ended
)

var errGone = errors.New("the client is gone")

func newStream(w http.ResponseWriter) *stream {
	return &stream{ResponseWriter: w, sem: make(chan struct{}, 1)}
}

func (w *stream) lock()   { w.sem <- struct{}{} }
func (w *stream) unlock() { <-w.sem }

// Unwrap implements the interface that [http.ResponseController] uses.
func (w *stream) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// expect records that a handler works on the request: the SDK has set the header of the
// response, and leaves it alone until it writes.
func (w *stream) expect() {
	w.lock()
	defer w.unlock()
	if w.state == streamOpen && w.timer == nil && w.isStream() {
		w.keepAlive()
	}
}

func (w *stream) isStream() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

func (w *stream) keepAlive() {
	w.timer = time.AfterFunc(keepAliveInterval, func() { _ = w.comment() })
}

// written reports whether the response was written and flushed. The client may have left
// since: many do as soon as they have read it.
func (w *stream) written() bool {
	w.lock()
	defer w.unlock()
	return w.answered && w.err == nil
}

// Write writes an event, or the body of a response that is not a stream.
func (w *stream) Write(p []byte) (n int, err error) {
	w.lock()
	defer w.unlock()
	defer func() { w.err = cmp.Or(w.err, err) }()

	if !w.isStream() {
		w.whole()
		return w.ResponseWriter.Write(p)
	}

	id, data := readEvent(p)
	if id != "" && len(data) == 0 && w.state == streamOpen {
		w.first = "id: " + id + "\ndata: \n\n" // as in 2025-11-25, basic/transports
		return len(p), nil
	}
	request, response := responseID(data)
	if isCanceled(request, data) {
		return len(p), nil
	}
	defer func() { w.answered = w.answered || response && err == nil }()
	if response && w.state == streamOpen && !w.resumes {
		w.whole()
		w.Header().Set("Content-Type", "application/json")
		_, err := w.ResponseWriter.Write(append(data, '\n'))
		if w.alone != nil && id != "" {
			w.alone(id)
		}
		return len(p), err
	}

	if w.sent != nil && id != "" {
		w.sent(id)
	}
	if err := w.begin(); err != nil {
		return 0, err
	}
	w.largest = max(w.largest, len(p))
	out := p
	if w.mark != 0 && len(data) > 0 {
		out = bytes.Replace(p, data, w.mark.put(data), 1)
	}
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// begin makes the response a stream of events. w is locked.
func (w *stream) begin() error {
	if w.state == streamOpen {
		w.state = streamEvents
	}
	first := w.first
	w.first = ""
	if first == "" {
		return nil
	}
	if id, _ := readEvent([]byte(first)); w.sent != nil {
		w.sent(id)
	}
	_, err := io.WriteString(w.ResponseWriter, first)
	return err
}

// readEvent returns the id and the data of an event as the SDK writes it, in lines that
// begin with event, id and data. Anything else has neither.
func readEvent(event []byte) (id string, data []byte) {
	rest, ok := bytes.CutPrefix(event, []byte("event: "))
	if ok {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	} else {
		rest = event
	}
	if value, ok := bytes.CutPrefix(rest, []byte("id: ")); ok {
		value, rest, _ = bytes.Cut(value, []byte("\n"))
		id = string(value)
	}
	if data, ok = bytes.CutPrefix(rest, []byte("data: ")); !ok {
		return id, nil
	}
	return id, bytes.TrimSuffix(data, []byte("\n\n"))
}

// whole makes the response one that is not a stream of events, so that no comments are
// sent. w is locked.
func (w *stream) whole() {
	w.state = streamWhole
	if w.timer != nil {
		w.timer.Stop()
	}
}

// FlushError implements the interface that [http.ResponseController] uses.
func (w *stream) FlushError() error {
	w.lock()
	defer w.unlock()
	return w.flush()
}

// flush sends what was written, and delays the next comment. w is locked.
func (w *stream) flush() (err error) {
	defer func() { w.err = cmp.Or(w.err, err) }()
	switch {
	case w.first != "": // nothing was written
		return nil
	case w.state == streamWhole:
	case w.timer != nil:
		w.timer.Reset(keepAliveInterval)
	case w.isStream():
		w.state = streamEvents
		w.keepAlive()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// comment sends an event that clients ignore.
func (w *stream) comment() error { return w.send(": alive\n\n") }

// leave records that the client no longer expects a response: it cannot resume a stream
// that has not begun.
func (w *stream) leave() {
	w.lock()
	w.first = ""
	w.unlock()
	_ = w.comment()
}

// sendMessage sends a message that does not come from the SDK.
func (w *stream) sendMessage(message []byte) error {
	return w.send("event: message\ndata: " + string(message) + "\n\n")
}

func (w *stream) send(text string) (err error) {
	w.lock()
	defer w.unlock()
	if w.state == streamWhole {
		return errGone
	}
	defer func() { w.err = cmp.Or(w.err, err) }()

	if err := w.begin(); err != nil {
		return err
	}
	if _, err := io.WriteString(w.ResponseWriter, text); err != nil {
		return err
	}
	return w.flush()
}

// end returns once nothing more is written.
func (w *stream) end() {
	w.lock()
	defer w.unlock()
	w.whole()
}
