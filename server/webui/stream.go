package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

const (
	eventStream = "text/event-stream"
	debounce    = 250 * time.Millisecond // changes within it are sent together
	refresh     = time.Second            // between two updates without an event: the times shown change
	heartbeat   = 15 * time.Second       // the longest time without any message
)

// The events of a stream. Their data is a [part]; that of eventHello names the
// build of the page.
const (
	eventHello = "hello" // the stream has begun: all parts follow
	eventPut   = "put"   // replace an element by HTML
	eventGone  = "gone"  // the page shows something that no longer exists: the last event
)

// A stream sends one client what changes on a page. Updates have a minimum
// interval, and each has the sections that differ from what the client has, so a
// slow client gets fewer updates and misses nothing.
type stream struct {
	w     http.ResponseWriter
	flush func() error
	page  page
	shown map[string]string // the HTML that the client has, by id
	spoke time.Time
	out   bytes.Buffer
}

// follow streams what changes on a page, until the client leaves or what the page
// shows is gone.
func (s *site) follow(w http.ResponseWriter, r *http.Request, p page) error {
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // keeps proxies from delaying events
	w.WriteHeader(http.StatusOK)

	st := &stream{w: w, flush: http.NewResponseController(w).Flush, page: p, shown: map[string]string{}}
	if r.Method == http.MethodHead {
		return nil
	}
	err := st.run(r.Context(), s.service.AllSessions().Watch(r.Context())) // watch before the first read, so that nothing is missed in between
	if err != nil && r.Context().Err() == nil {
		s.Logger.Error("page not followed", "path", r.URL.Path, "error", err)
	}
	return nil // the answer has begun; the client reconnects when it ends
}

// run updates the client after events that change the page, and at least each
// refresh.
func (st *stream) run(ctx context.Context, happens <-chan wire.Event) error {
	tick := time.NewTicker(debounce)
	defer tick.Stop()

	st.out.WriteString("retry: 1000\n")
	st.event(eventHello, build)

	updated := time.Now()
	done, err := st.update(ctx, updated)
	for stale := false; err == nil && !done; {
		select {
		case e, ok := <-happens:
			if !ok {
				return nil
			}
			stale = st.page.changed(e) || stale
		case now := <-tick.C:
			if !stale && now.Sub(updated) < refresh {
				continue
			}
			stale, updated = false, now
			done, err = st.update(ctx, now)
		case <-ctx.Done():
			return nil
		}
	}
	return err
}

// update sends what the client does not have yet. It is done when the page is
// gone, or the client.
func (st *stream) update(ctx context.Context, now time.Time) (done bool, err error) {
	parts, err := parts(ctx, st.page)
	switch {
	case notFound(err):
		st.event(eventGone, part{})
		done = true
	case err != nil:
		return false, err
	}
	st.differences(parts)

	if st.out.Len() == 0 && now.Sub(st.spoke) < heartbeat {
		return false, nil
	}
	if st.out.Len() == 0 {
		st.out.WriteString(": alive\n\n")
	}
	st.spoke = now
	if _, err := st.out.WriteTo(st.w); err != nil {
		return true, nil
	}
	return done || st.flush() != nil, nil
}

// differences writes the events that bring the client up to date.
func (st *stream) differences(parts []part) {
	for _, p := range parts {
		if st.shown[p.ID] != p.HTML {
			st.shown[p.ID] = p.HTML
			st.event(eventPut, p)
		}
	}
}

// event writes an event.
func (st *stream) event(name string, data any) {
	fmt.Fprintf(&st.out, "event: %s\ndata: ", name)
	enc := json.NewEncoder(&st.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data) // strings, on one line: it cannot fail
	st.out.WriteByte('\n')
}
