package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
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

	head := ""
	if id != "" {
		head = "id: " + id + "\n"
	}
	return e.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", head, event, text))
}

// beat keeps the stream open and detects a client that has disconnected.
func (e events) beat() error { return e.write(": alive\n\n") }

func (e events) write(text string) error {
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.w.FlushError()
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
