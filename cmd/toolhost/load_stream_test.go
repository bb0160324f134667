package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server/wire"
)

// loadEvent is one server-sent event.
type loadEvent struct{ id, name, data string }

// readEvents calls each for each event of an answer until it says no, or the
// answer ends.
func readEvents(resp *http.Response, each func(loadEvent) (more bool, err error)) error {
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 1<<20)
	var e loadEvent
	for s.Scan() {
		if strings.HasPrefix(s.Text(), ":") {
			continue // the server is there
		}
		field, value, _ := strings.Cut(s.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				if more, err := each(e); !more || err != nil {
					return err
				}
			}
			e = loadEvent{}
		}
	}
	return s.Err()
}

// follow reads the output of a run as events until its end, and compares it
// with the file. Now and then it leaves in the middle and comes back with the
// id of the last event.
func (c *loadClient) follow(ctx context.Context, r *loadRun) error {
	var got strings.Builder
	last, ended := "", false
	for began := time.Now(); !ended; {
		leave := -1 // after so many events
		if c.rng.IntN(3) == 0 {
			leave = c.rng.IntN(3)
		}
		err := c.followOnce(ctx, r, &last, func(e loadEvent) (more bool, err error) {
			switch e.name {
			case wire.StreamOutput:
				var out wire.Output
				if err := json.Unmarshal([]byte(e.data), &out); err != nil {
					return false, err
				}
				if out.Offset != int64(got.Len()) || out.Omitted != 0 || out.Attempt != 1 && !r.stopped || out.Base64 != nil {
					return false, fmt.Errorf("output of %s: offset %d after %d bytes: %+v", r.id, out.Offset, got.Len(), out)
				}
				got.WriteString(out.Text)
			case wire.StreamEnd:
				ended = true
			}
			leave--
			return !ended && leave != -1, nil
		})
		if err != nil {
			return err
		}
		if ended {
			c.figures.add("follow to the end", time.Since(began))
		}
	}
	a, err := c.do(ctx, "output.log", "GET", "/v1/runs/"+r.id+"/artifacts/output.log", nil, nil, isOK)
	if err != nil {
		return err
	}
	if err := expect(got.String() == string(a.body), "the output of %s as events has %d bytes, the file %d", r.id, got.Len(), len(a.body)); err != nil {
		return err
	}
	return c.verify(ctx, r)
}

// followOnce opens a stream where an earlier one ended.
func (c *loadClient) followOnce(ctx context.Context, r *loadRun, last *string, each func(loadEvent) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before its end is read, this closes the connection
	headers := []string{"Accept", "text/event-stream"}
	if *last != "" {
		headers = append(headers, "Last-Event-ID", *last)
	}
	began := time.Now()
	resp, err := c.open(ctx, "GET", "/v1/runs/"+r.id+"/output", nil, headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("following %s: status %d", r.id, resp.StatusCode)
	}
	c.figures.add("follow, opened", time.Since(began))
	left := false
	err = readEvents(resp, func(e loadEvent) (bool, error) {
		*last = e.id
		more, err := each(e)
		left = !more
		return more, err
	})
	if err == nil && !left {
		return fmt.Errorf("the stream of %s ended without its end", r.id)
	}
	return err
}

// watch follows the events of the session until ctx ends, or the server closes
// the stream, and keeps what they say. It returns when it has begun, with a
// channel that delivers why it ended.
func (c *loadClient) watch(ctx context.Context) (<-chan error, error) {
	resp, err := c.open(ctx, "GET", "/v1/events", nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("events: status %d", resp.StatusCode)
	}
	c.watched = map[string]*sighting{}
	over := make(chan error, 1)
	go func() {
		defer resp.Body.Close()
		err := readEvents(resp, func(e loadEvent) (bool, error) { return true, c.saw(e) })
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		over <- err
	}()
	return over, nil
}

// saw keeps what an event says, and checks that it can be.
func (c *loadClient) saw(e loadEvent) error {
	var event wire.Event
	if err := json.Unmarshal([]byte(e.data), &event); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if event.Kind == wire.EventMissed {
		c.missed = true
	}
	if event.Run == nil {
		return nil
	}
	s := c.watched[event.Run.TaskID]
	if s == nil {
		s = &sighting{}
		c.watched[event.Run.TaskID] = s
	}
	switch event.Kind {
	case wire.EventQueued:
		s.queued = true
	case wire.EventStarted:
		s.started = true
	case wire.EventEnded:
		s.ended = true
	}
	return expect(event.Run.Session == c.session, "an event of session %s in %s", event.Run.Session, c.session)
}

// unseen returns a run that was spawned while events were followed and has ended,
// but whose end was not among the events; "" if every end was.
func (c *loadClient) unseen() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.ended {
		s := c.watched[id]
		if !c.missed && r.watched && (s == nil || !s.queued || !s.ended) {
			return id
		}
	}
	return ""
}
