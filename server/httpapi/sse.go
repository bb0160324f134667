package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/server/wire"
)

const eventStream = "text/event-stream"

// events is a response that is a stream of server-sent events (HTML standard).
type events struct{ w *response }

// stream starts a stream of events.
func (r *request) stream() (events, error) {
	h := r.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // nginx must not hold events back
	r.w.WriteHeader(http.StatusOK)
	return events{r.w}, r.w.FlushError()
}

// send sends one event. A client that reconnects asks for the events after the last one
// with an id.
func (e events) send(event, id string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}

	return e.write(append(append(eventHead(event, id, len(text)), text...), "\n\n"...))
}

// sendOutput sends a piece of the log, which it copies once.
func (e events) sendOutput(id string, out wire.Output, piece []byte) error {
	head, err := json.Marshal(out)
	if err != nil {
		return err
	}

	text := append(eventHead(wire.StreamOutput, id, len(piece)+len(piece)/8), head[:len(head)-1]...)
	if text, err = jsontext.AppendQuote(append(text, `,"text":`...), piece); err != nil { // not UTF-8
		out.Base64 = piece
		return e.send(wire.StreamOutput, id, out)
	}
	return e.write(append(text, "}\n\n"...))
}

// eventHead returns what comes before the data of an event, with room for its size.
func eventHead(event, id string, size int) []byte {
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Appendf(make([]byte, 0, size+128), "%sevent: %s\ndata: ", id, event)
}

// beat keeps the stream open and detects a client that has disconnected.
func (e events) beat() error { return e.write([]byte(": alive\n\n")) }

func (e events) write(text []byte) error {
	_, err := e.w.Write(text)
	if err == nil {
		err = e.w.FlushError()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// wantsEvents reports whether the Accept header names the media type of event streams.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if media, params, err := mime.ParseMediaType(part); err == nil && media == eventStream {
			weight, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
			return err == nil && weight > 0
		}
	}
	return false
}
