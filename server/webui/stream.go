package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	eventStream = "text/event-stream"
	together    = 250 * time.Millisecond // what happens within it is sent at once
	calm        = time.Second            // from one look to the next when nothing was heard: clocks go on
	heartbeat   = 15 * time.Second       // between two signs of life
)

// The events of a stream. Their data is a [change]; that of eventHello names
// the files the page was made of.
const (
	eventHello = "hello" // the stream has begun: the parts follow, all of them
	eventPut   = "put"   // an element is to be as HTML says
	eventAdd   = "add"   // HTML is to be put at the end of an element
	eventDrop  = "drop"  // an element is gone
	eventGone  = "gone"  // what the page showed is gone: the last event
)

// A change is what has changed of a page.
type change struct {
	ID   string `json:"id"` // of the element
	HTML string `json:"html,omitempty"`
}

// A stream tells one client what changes of a page. However much happens it
// looks at most once in a while, and then sends the difference between what the
// client has and what there is. A client that is too slow is looked at less
// often, and gets it all by the next difference.
type stream struct {
	w     http.ResponseWriter
	flush func() error
	page  page
	shown map[string]part // what the client has
	begun bool
	spoke time.Time
	out   bytes.Buffer
}

// follow streams what changes of a page, until the client leaves or what the
// page shows is gone.
func (s *site) follow(w http.ResponseWriter, r *http.Request, p page) error {
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // proxies are not to hold events back
	w.WriteHeader(http.StatusOK)
	st := &stream{w: w, flush: http.NewResponseController(w).Flush, page: p, shown: map[string]part{}}
	if r.Method == http.MethodHead {
		return nil
	}
	err := st.run(r.Context(), s.service.Runs().Watch(r.Context(), "")) // watched before the first look, so that nothing is missed between
	if err != nil && r.Context().Err() == nil && !errors.Is(err, errLeft) {
		s.log.Error("page not followed", "path", r.URL.Path, "error", err)
	}
	return nil // the answer has begun, and its end tells: the client comes again
}

// errLeft is that the client does not take what it is sent.
var errLeft = errors.New("the client is gone")

// run looks at the page whenever something was heard that changes it, but for
// at most so often, and now and then without.
func (st *stream) run(ctx context.Context, happens <-chan background.Event) error {
	tick := time.NewTicker(together)
	defer tick.Stop()
	looked := time.Now()
	done, err := st.look(ctx, looked)
	for stale := false; err == nil && !done; {
		select {
		case e, ok := <-happens:
			if !ok {
				return nil
			}
			stale = st.page.heard(e) || stale
		case now := <-tick.C:
			if !stale && now.Sub(looked) < calm {
				continue
			}
			stale, looked = false, now
			done, err = st.look(ctx, now)
		case <-ctx.Done():
			return nil
		}
	}
	return err
}

// look sends what is not as the client has it.
func (st *stream) look(ctx context.Context, now time.Time) (done bool, err error) {
	st.out.Reset()
	if !st.begun {
		st.begun = true
		fmt.Fprintf(&st.out, "retry: 1000\n")
		st.event(eventHello, build)
	}
	parts, err := st.page.look(ctx, now)
	switch {
	case errors.Is(err, background.ErrNotFound):
		st.event(eventGone, change{})
		done = true
	case err != nil:
		return false, err
	default:
		st.differences(parts)
	}
	if st.out.Len() == 0 && now.Sub(st.spoke) < heartbeat {
		return false, nil
	}
	if st.out.Len() == 0 {
		st.out.WriteString(": alive\n\n")
	}
	st.spoke = now
	if _, err = st.w.Write(st.out.Bytes()); err == nil {
		err = st.flush()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errLeft, err)
	}
	return done, err
}

// differences writes events that make what the client has what there is.
func (st *stream) differences(parts []part) {
	for _, now := range parts {
		was, known := st.shown[now.id]
		st.shown[now.id] = now
		if known && bytes.Equal(was.before, now.before) && bytes.Equal(was.after, now.after) && st.rows(was, now) {
			continue
		}
		st.event(eventPut, change{now.id, string(now.html())})
	}
}

// rows writes the events for rows that have changed, gone at the beginning, or
// come at the end. It reports false, and writes nothing, if that is not all.
func (st *stream) rows(was, now part) bool {
	if len(was.rows) == 0 || len(now.rows) == 0 {
		return len(was.rows) == len(now.rows)
	}
	gone := slices.IndexFunc(was.rows, func(r row) bool { return r.id == now.rows[0].id })
	if gone < 0 {
		return false
	}
	kept := was.rows[gone:]
	if len(kept) > len(now.rows) || !slices.EqualFunc(kept, now.rows[:len(kept)], func(a, b row) bool { return a.id == b.id }) {
		return false
	}
	for _, r := range was.rows[:gone] {
		st.event(eventDrop, change{ID: r.id})
	}
	for i, r := range now.rows[:len(kept)] {
		if !bytes.Equal(r.html, kept[i].html) {
			st.event(eventPut, change{r.id, string(r.html)})
		}
	}
	if added := now.rows[len(kept):]; len(added) > 0 {
		st.event(eventAdd, change{now.id + "-rows", string(part{rows: added}.html())})
	}
	return true
}

// event writes an event.
func (st *stream) event(name string, data any) {
	fmt.Fprintf(&st.out, "event: %s\ndata: ", name)
	enc := json.NewEncoder(&st.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(data) // strings, on one line: it cannot fail
	st.out.WriteByte('\n')
}
