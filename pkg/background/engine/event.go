package engine

import (
	"context"
	"slices"
	"sync"
)

// An EventKind says what happened.
type EventKind string

// The kinds of events of runs and schedules.
const (
	EventQueued    EventKind = "queued"    // a run was submitted, queued again, or returned to the queue by the worker that had claimed it
	EventStarted   EventKind = "started"   // a run was started, or adopted
	EventBeat      EventKind = "beat"      // a running run reported a [Beat]
	EventWaiting   EventKind = "waiting"   // a running run was suspended
	EventStopping  EventKind = "stopping"  // a running run was canceled
	EventEnded     EventKind = "ended"     // a run became terminal
	EventMessage   EventKind = "message"   // a message was sent to a run
	EventSeen      EventKind = "seen"      // a run's notice was acknowledged
	EventPurged    EventKind = "purged"    // the record of a run or schedule was removed
	EventScheduled EventKind = "scheduled" // a schedule was stored or changed
	EventMissed    EventKind = "missed"    // the watcher was too slow, and events were dropped: read everything again
)

// An Event describes one change. Its Run has no payload.
type Event struct {
	Kind     EventKind `json:"kind"`
	Session  string    `json:"session,omitempty"`
	Run      *Run      `json:"run,omitempty"`      // the run after the change; nil for an event of a schedule
	Schedule *Schedule `json:"schedule,omitempty"` // the schedule after the change, with its Args; nil for an event of a run
	Claimed  bool      `json:"-"`                  // with EventQueued: whether the worker that submitted the run has claimed it
}

// watchBuffer is the number of events by which a watcher may fall behind.
const watchBuffer = 256

// A Feed passes events to watchers in the same process. The zero Feed is ready
// for use. It is safe for concurrent use.
type Feed struct {
	mu       sync.Mutex
	watchers map[string][]*watcher // watchers of each session; "": watchers of all sessions
}

type watcher struct {
	events chan Event
	missed bool // the last element of events is EventMissed
}

// Watch returns the events published from now on: those of one session, or all if
// session is "". The channel is closed after ctx is done. Publish never waits for
// a watcher: a watcher that falls 256 events behind loses events, and gets one
// [EventMissed] in their place.
func (f *Feed) Watch(ctx context.Context, session string) <-chan Event {
	w := &watcher{events: make(chan Event, watchBuffer)}
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.watchers == nil {
		f.watchers = make(map[string][]*watcher)
	}
	f.watchers[session] = append(f.watchers[session], w)

	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()

		f.watchers[session] = slices.DeleteFunc(f.watchers[session], func(other *watcher) bool { return other == w })
		if len(f.watchers[session]) == 0 {
			delete(f.watchers, session)
		}
		close(w.events)
	})
	return w.events
}

// Publish sends e to the watchers.
func (f *Feed) Publish(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, w := range f.watchers[e.Session] {
		w.send(e)
	}
	for _, w := range f.watchers[""] {
		w.send(e)
	}
}

// send keeps the last slot of the channel for EventMissed.
func (w *watcher) send(e Event) {
	w.missed = w.missed && len(w.events) > 0

	switch {
	case w.missed:
	case len(w.events) < watchBuffer-1:
		w.events <- e
	default:
		w.missed = true
		w.events <- Event{Kind: EventMissed}
	}
}

// RunEvent returns an event of a run, without the run's payload.
func RunEvent(kind EventKind, run Run) Event {
	run = run.Light()
	return Event{Kind: kind, Session: run.Session, Run: &run}
}

// Missed tells all watchers to read everything again.
func (f *Feed) Missed() {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, all := range f.watchers {
		for _, w := range all {
			w.send(Event{Kind: EventMissed})
		}
	}
}
