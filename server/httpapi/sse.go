package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const eventStream = "text/event-stream"

// events is an answer as a stream of server-sent events (HTML standard).
type events struct{ w *response }

// stream begins a stream of events.
func (r *request) stream() (events, error) {
	h := r.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // nginx must not hold events back
	r.w.WriteHeader(http.StatusOK)
	return events{r.w}, r.w.FlushError()
}

// send sends one event. A client that comes back asks for what follows the last
// event with an id.
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

// beat keeps the stream alive, and finds out whether the client is.
func (e events) beat() error { return e.write(": alive\n\n") }

func (e events) write(text string) error {
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.w.FlushError()
}

// wantsEvents reports whether a client accepts a stream of events by name.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		media, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(media), eventStream) && weight(params) > 0 {
			return true
		}
	}
	return false
}

// weight is the weight of a media type, 1 if none is given; invalid ones are 0.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}

		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}
