package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const eventStream = "text/event-stream"

// events is an answer as a stream of server-sent events, as of the HTML
// standard.
type events struct{ w *response }

// stream begins a stream of events.
func (r *request) stream() (events, error) {
	h := r.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // proxies are not to hold events back
	r.w.WriteHeader(http.StatusOK)
	return events{r.w}, r.w.FlushError()
}

// send sends one event. Without an id, a client that comes back asks for what
// follows the last event that had one.
func (e events) send(event, id string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var b strings.Builder
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", event, text)
	if _, err := e.w.Write([]byte(b.String())); err != nil {
		return err
	}
	return e.w.FlushError()
}

// beat says that the server is there, and finds out whether the client is.
func (e events) beat() error {
	if _, err := e.w.Write([]byte(": alive\n\n")); err != nil {
		return err
	}
	return e.w.FlushError()
}

// wantsEvents reports whether a client asks for a stream of events.
func wantsEvents(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			media, params, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(media), eventStream) && quality(params) > 0 {
				return true
			}
		}
	}
	return false
}
