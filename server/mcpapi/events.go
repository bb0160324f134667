package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/toolhost/toolhost/internal/fair"
)

// Limits of the events kept for streams that may be resumed.
const (
	maxEvents         = 64 << 20      // bytes kept for all clients
	maxEventsOfClient = maxEvents / 4 // bytes kept for one client
	maxResponse       = 1 << 20       // bytes of a response; Python's SDK 2 loses larger events
	maxNotes          = 16            // latest notifications kept of a stream
	maxEndedStreams   = 32            // ended streams kept of a session
	streamLife        = 5 * time.Minute
)

// events keeps the events sent on the streams of sessions that begin with initialize, so that a
// client whose connection broke can fetch the rest, which the official SDKs do. It implements
// [mcp.EventStore]. It keeps every request to the client, every response, and the last
// notifications. A response that is too large, or would exceed a limit, is replaced by an error
// that says so. Events that a client has received are dropped when it resumes its stream, and a
// stream is dropped streamLife after its end.
type events struct {
	pool   *fair.Pool                  // bytes
	client func(session string) string // returns the client of a session
	closed func(session string)        // called when a session has ended

	mu       sync.Mutex
	sessions map[string]*keptSession
}

type keptSession struct {
	client  string
	known   bool // client is set
	streams map[string]*keptStream
}

type keptStream struct {
	kept   []event
	next   int       // index of the next event
	ended  time.Time // time of the response; zero before it
	holder *holder   // HTTP response that carries the events
}

type event struct {
	index int
	data  []byte
	note  bool // the event is a notification
}

// holder is an HTTP response that carries a stream.
type holder struct {
	leave context.CancelFunc
	left  chan struct{} // closed once the response no longer carries the stream
}

func newEvents(client func(session string) string, closed func(session string)) *events {
	return &events{pool: fair.NewPool(maxEvents, maxEventsOfClient), client: client, closed: closed, sessions: map[string]*keptSession{}}
}

// Open implements [mcp.EventStore]. The stream "" begins a session.
func (e *events) Open(_ context.Context, session, stream string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[session]
	switch {
	case s != nil:
	case stream == "":
		s = &keptSession{streams: map[string]*keptStream{}}
		e.sessions[session] = s
	default: // just closed
		return errNotKept
	}
	if s.streams[stream] == nil {
		s.streams[stream] = &keptStream{}
	}
	return nil
}

// find returns a stream and its session; nil if it is not kept. e is locked.
func (e *events) find(session, stream string) (*keptSession, *keptStream) {
	s := e.sessions[session]
	if s == nil {
		return nil, nil
	}
	return s, s.streams[stream]
}

// Append implements [mcp.EventStore].
func (e *events) Append(_ context.Context, session, stream string, data []byte) error {
	client := e.client(session) // locks the connections

	e.mu.Lock()
	defer e.mu.Unlock()
	s, t := e.find(session, stream)
	if t == nil { // the session was just closed
		return nil
	}
	if !s.known {
		s.client, s.known = client, true
	}

	at := t.next
	t.next++
	if len(data) == 0 { // only carries the first id
		return nil
	}

	id, response := responseID(data)
	if isCanceled(id, data) { // nothing is sent any longer, and nobody resumes that
		e.remove(s, stream)
		return nil
	}
	note := !response && !bytes.HasPrefix(data, []byte(beforeID))
	if response {
		t.ended = time.Now()
		e.expire(s)
	}
	if !e.take(s, t, data, response) {
		switch {
		case note:
			return nil
		case response:
			data = lost(id, len(data))
		}
		e.pool.Overdraw(s.client, len(data))
	}
	t.kept = append(t.kept, event{at, data, note})
	e.trim(s, t)
	return nil
}

// take reserves room for an event. For a response, it removes ended streams if it has to.
func (e *events) take(s *keptSession, t *keptStream, data []byte, response bool) bool {
	if len(data) > maxResponse {
		return false
	}
	for {
		if _, ok := e.pool.Take(s.client, len(data)); ok || !response {
			return ok
		}
		oldest := s.oldest(t)
		if oldest == "" {
			return false
		}
		e.remove(s, oldest)
	}
}

// trim drops excess notifications.
func (e *events) trim(s *keptSession, t *keptStream) {
	notes := 0
	for i := len(t.kept) - 1; i >= 0; i-- {
		if !t.kept[i].note {
			continue
		}
		if notes++; notes > maxNotes {
			e.pool.Give(s.client, len(t.kept[i].data))
			t.kept = slices.Delete(t.kept, i, i+1)
		}
	}
}

// expire removes streams that ended long ago, or beyond the limit.
func (e *events) expire(s *keptSession) {
	ended := 0
	for id, t := range s.streams {
		if t.ended.IsZero() {
			continue
		}
		if time.Since(t.ended) > streamLife {
			e.remove(s, id)
			continue
		}
		ended++
	}
	for ; ended > maxEndedStreams; ended-- {
		e.remove(s, s.oldest(nil))
	}
}

// oldest returns the stream that ended first; "" for none.
func (s *keptSession) oldest(except *keptStream) (oldest string) {
	var since time.Time
	for id, t := range s.streams {
		if t != except && !t.ended.IsZero() && (oldest == "" || t.ended.Before(since)) {
			oldest, since = id, t.ended
		}
	}
	return oldest
}

func (e *events) remove(s *keptSession, stream string) {
	t := s.streams[stream]
	for _, ev := range t.kept {
		e.pool.Give(s.client, len(ev.data))
	}
	delete(s.streams, stream)
}

// After implements [mcp.EventStore]. Since notifications may be missing, it numbers the
// events again: the SDK counts those that it sends.
func (e *events) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		after, ok := e.after(session, stream, index)
		if !ok {
			yield(nil, errNotKept)
			return
		}
		for _, data := range after {
			if !yield(data, nil) {
				return
			}
		}
	}
}

var errNotKept = errors.New("the stream is not kept")

func (e *events) after(session, stream string, index int) (after [][]byte, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, t := e.find(session, stream)
	if t == nil {
		return nil, false
	}

	var kept []event
	for _, ev := range t.kept {
		if ev.index <= index {
			e.pool.Give(s.client, len(ev.data))
			continue
		}
		index++
		after, kept = append(after, ev.data), append(kept, event{index, ev.data, ev.note})
	}
	t.kept, t.next = kept, index+1
	return after, true
}

// SessionClosed implements [mcp.EventStore].
func (e *events) SessionClosed(_ context.Context, session string) error {
	e.closed(session) // locks the connections
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[session]; s != nil {
		for stream := range s.streams {
			e.remove(s, stream)
		}
		delete(e.sessions, session)
	}
	return nil
}

// forget drops a stream whose ids the client does not know.
func (e *events) forget(session, eventID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stream, _ := streamOf(eventID)
	if s, t := e.find(session, stream); t != nil && stream != "" {
		e.remove(s, stream)
	}
}

// hold records which HTTP response carries a stream.
func (e *events) hold(session, eventID string, h *holder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stream, _ := streamOf(eventID)
	if _, t := e.find(session, stream); t != nil && stream != "" {
		t.holder = h
	}
}

// resume moves a stream to another HTTP response. It ends the previous one, whose
// connection may have broken unnoticed. It reports false if the stream is not kept.
func (e *events) resume(ctx context.Context, session, eventID string, to *holder) bool {
	stream, ok := streamOf(eventID)
	e.mu.Lock()
	var t *keptStream
	if s := e.sessions[session]; ok && s != nil {
		e.expire(s)
		t = s.streams[stream]
	}
	var h *holder
	if t != nil {
		h, t.holder = t.holder, to
	}
	e.mu.Unlock()

	if h != nil {
		h.leave()
		select {
		case <-h.left:
		case <-ctx.Done():
		}
	}
	return t != nil
}

// streamOf returns the stream of an event with the id STREAM_INDEX.
func streamOf(eventID string) (stream string, ok bool) {
	stream, index, ok := strings.Cut(eventID, "_")
	n, err := strconv.Atoi(index)
	return stream, ok && err == nil && n >= 0
}

// beforeID is how the SDK begins each message that has an id.
const beforeID = `{"jsonrpc":"2.0","id":`

// responseID returns the id of the request that a message answers. It reports false
// for other messages.
func responseID(message []byte) (id json.RawMessage, ok bool) {
	rest, ok := bytes.CutPrefix(message, []byte(beforeID))
	if !ok {
		return nil, false
	}

	// The SDK writes "id" first, then the field that distinguishes kinds of messages.
	// Inside a string the quotes would be escaped.
	for _, field := range []string{`,"result":`, `,"error":`} {
		at := bytes.Index(rest, []byte(field))
		if at >= 0 && !bytes.Contains(rest[:at], []byte(`,"method":`)) {
			return json.RawMessage(rest[:at]), true
		}
	}
	return nil, false
}

// isCanceled reports whether a message is the SDK's response to a request that its client
// has canceled: such a client expects none (basic/utilities/cancellation).
func isCanceled(id json.RawMessage, message []byte) bool {
	rest, ok := bytes.CutPrefix(message, append([]byte(beforeID), id...))
	return ok && string(rest) == `,"error":{"code":0,"message":"context canceled"}}`
}

// codeLost is the error code for a response that was not kept for a client whose
// connection broke. It is an HTTP code, see codeBusy.
const codeLost = 410

// lost returns the error that replaces a response.
func lost(id json.RawMessage, size int) []byte {
	data, _ := json.Marshal(failure{"2.0", id, &jsonrpc.Error{
		Code: codeLost,
		Message: fmt.Sprintf("the connection broke before the answer of %d bytes arrived, and the answer is too large to be kept: "+
			"call again, or run the tool with spawn_background, whose result is kept", size),
	}})
	return data
}
