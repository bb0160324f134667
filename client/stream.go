package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/toolhost/toolhost/server/wire"
)

const mediaEvents = "text/event-stream"

// Follower receives what a run does. Functions that are nil are not called.
type Follower struct {
	Output func(wire.Output)
	Run    func(wire.Run) // its status, detail or progress has changed
	Away   func(error)    // the server went away, and is waited for
}

// Follow reports a run's output and progress until the run has ended, and
// returns it. If the server is restarted, it waits up to two minutes for the
// server and continues where the output was.
func (c *Client) Follow(ctx context.Context, id string, f Follower) (wire.Run, error) {
	var last string
	retry := Retry{Away: f.Away}

	for {
		resp, err := c.send(ctx, "GET", runPath(id)+"/output", nil, "Accept", mediaEvents, "Last-Event-ID", last)
		if err == nil {
			retry.Reached()
			var run *wire.Run
			run, err = f.read(resp.Body, &last)
			_ = resp.Body.Close()
			if run != nil {
				return *run, nil
			}
			err = c.unreachable(ctx, err)
		}

		if err := retry.Wait(ctx, err); err != nil {
			return wire.Run{}, err
		}
	}
}

// read reads events up to the last one. last is the id of the latest event.
func (f Follower) read(body io.Reader, last *string) (*wire.Run, error) {
	for e, err := range events(body) {
		if err != nil {
			return nil, err
		}

		switch e.name {
		case wire.StreamOutput:
			var out wire.Output
			if err := json.Unmarshal(e.data, &out); err != nil {
				return nil, err
			}
			if f.Output != nil {
				f.Output(out)
			}
		case wire.StreamRun, wire.StreamEnd:
			run := new(wire.Run)
			if err := json.Unmarshal(e.data, run); err != nil {
				return nil, err
			}
			if e.name == wire.StreamEnd {
				return run, nil
			}
			if f.Run != nil {
				f.Run(*run)
			}
		}
		if e.id != "" {
			*last = e.id
		}
	}
	return nil, io.ErrUnexpectedEOF
}

// Events yields what happens to the tools, and to the runs and schedules of the
// session, from now on. It ends with the error that ended the stream: nothing is
// repeated, so read everything again after it.
func (c *Client) Events(ctx context.Context) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		resp, err := c.send(ctx, "GET", "/v1/events", nil, "Accept", mediaEvents)
		if err != nil {
			yield(wire.Event{}, err)
			return
		}
		defer resp.Body.Close()

		for e, err := range events(resp.Body) {
			var out wire.Event
			if err == nil {
				err = json.Unmarshal(e.data, &out)
			}
			if err != nil {
				yield(wire.Event{}, c.unreachable(ctx, err))
				return
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

// event is a server-sent event.
type event struct {
	name, id string
	data     []byte
}

// maxEvent bounds a line of an event in bytes. The largest has a whole result.
const maxEvent = 64 << 20

// events reads server-sent events as Toolhost writes them: data is one line. It
// ends with an error, io.EOF at the end of the stream.
func events(r io.Reader) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxEvent)

		var e event
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = []byte(value)
			case "":
				if lines.Text() != "" || e.name == "" { // a comment, or nothing yet
					continue
				}
				if !yield(e, nil) {
					return
				}
				e = event{}
			}
		}

		err := lines.Err()
		switch err {
		case nil:
			err = io.EOF
		case bufio.ErrTooLong:
			err = fmt.Errorf("a line of more than %d bytes in a stream of events", maxEvent)
		}
		yield(event{}, err)
	}
}
