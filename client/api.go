package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// Connections returns the clients of the server, most recent request first. Only the
// operator may call it.
func (c *Client) Connections(ctx context.Context) ([]wire.ClientConnection, error) {
	out, err := do[wire.Connections](ctx, c, "GET", "/v1/connections", nil)
	return out.Connections, err
}

// Tools returns the tools to list for a model: all that the session can call, except
// deferred tools, which [Client.Declarations] finds.
func (c *Client) Tools(ctx context.Context) ([]wire.Definition, error) {
	out, err := do[wire.Tools](ctx, c, "GET", "/v1/tools", nil)
	return out.Tools, err
}

// AllTools returns the tools that the session can call, including deferred tools.
func (c *Client) AllTools(ctx context.Context) ([]wire.Definition, error) {
	out, err := do[wire.Tools](ctx, c, "GET", "/v1/tools?all=true", nil)
	return out.Tools, err
}

// Declarations returns the tools that match a query as TypeScript declarations, best match
// first. An empty query matches all tools, sorted by name. The limit is at most 200; 0
// means 50.
func (c *Client) Declarations(ctx context.Context, query string, limit int) (wire.Declarations, error) {
	values := url.Values{}
	set(values, "query", query)
	set(values, "limit", limit)
	return do[wire.Declarations](ctx, c, "GET", "/v1/declarations?"+values.Encode(), nil)
}

// Call calls a tool and waits for its result. A call that fails or reaches a limit has a
// result too. Call returns an error only if the call was refused or got no response. When
// ctx is done, the call is canceled.
func (c *Client) Call(ctx context.Context, call wire.Call) (abi.Result, error) {
	return do[abi.Result](ctx, c, "POST", "/v1/calls", call)
}

// CallOnce is like Call, but sends an idempotency key, so that it can be repeated if no
// response arrives. With the same key, tool and arguments, it waits for the original call
// and returns the result of that call. When ctx is done, the call continues.
func (c *Client) CallOnce(ctx context.Context, call wire.Call, key string) (abi.Result, error) {
	return do[abi.Result](ctx, c, "POST", "/v1/calls", call, wire.KeyHeader, key)
}

// Spawn starts a tool as a background run. With an idempotency key, it can be repeated if
// no response arrives: the same key, tool and arguments return the same run. An empty key
// is not sent.
func (c *Client) Spawn(ctx context.Context, spawn wire.Spawn, key string) (wire.Run, error) {
	return do[wire.Run](ctx, c, "POST", "/v1/runs", spawn, wire.KeyHeader, key)
}

// RunQuery selects the runs to list. The zero value selects the newest 50.
type RunQuery struct {
	Active bool   // only runs that have not ended
	Parent string // only children of the run with this id
	Before string // value of [wire.Runs].Next on the previous page
	Limit  int    // maximum number of runs to return, at most 200; 0 means 50

	AllSessions bool // include the runs of all sessions; only for the operator

	Statuses                   []wire.Status    // only runs in one of these states
	Errors                     []wire.ErrorKind // only runs that failed for one of these reasons
	Tool, Kind, Plugin         string           // only runs of this tool, kind of tool, or plugin
	CreatedSince, CreatedUntil time.Time        // only runs submitted at or after CreatedSince, and before CreatedUntil
	StartedSince, StartedUntil time.Time        // only runs last started at or after StartedSince, and before StartedUntil
	Text                       string           // only runs with this text in the tool's name, the title or the error
}

// Runs returns a page of runs, newest first, without their results.
func (c *Client) Runs(ctx context.Context, q RunQuery) (wire.Runs, error) {
	query := url.Values{}
	set(query, "active", q.Active)
	set(query, "parent", q.Parent)
	set(query, "before", q.Before)
	set(query, "limit", q.Limit)
	set(query, "all_sessions", q.AllSessions)

	for _, status := range q.Statuses {
		query.Add("status", string(status))
	}
	for _, kind := range q.Errors {
		query.Add("error", string(kind))
	}
	set(query, "tool", q.Tool)
	set(query, "kind", q.Kind)
	set(query, "plugin", q.Plugin)
	set(query, "text", q.Text)

	for name, at := range map[string]time.Time{
		"created_since": q.CreatedSince, "created_until": q.CreatedUntil, "started_since": q.StartedSince, "started_until": q.StartedUntil,
	} {
		if !at.IsZero() {
			query.Set(name, at.Format(time.RFC3339Nano))
		}
	}

	return do[wire.Runs](ctx, c, "GET", "/v1/runs?"+query.Encode(), nil)
}

// withQuery returns a path, followed by the query if that has any parameters.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// set sets a query parameter, unless its value is the zero value.
func set[T comparable](query url.Values, name string, value T) {
	if value != *new(T) {
		query.Set(name, fmt.Sprint(value))
	}
}

// CheckOptions configure [Client.Check]. With the zero value, Check returns the runs at
// once, without output.
type CheckOptions struct {
	Wait time.Duration // how long to wait for the runs to end, at most 9 minutes
	All  bool          // wait until all runs have ended, not only the first
	Tail int           // number of characters to return of the latest output, cleaned for a model
}

// Check returns up to 20 runs with their results. The wait ends early if a run has
// questions for its user.
func (c *Client) Check(ctx context.Context, ids []string, opts CheckOptions) (wire.Runs, error) {
	query := url.Values{"id": ids}
	set(query, "wait", opts.Wait)
	set(query, "tail", opts.Tail)
	if opts.All {
		query.Set("until", "all")
	}
	return do[wire.Runs](ctx, c, "GET", "/v1/runs?"+query.Encode(), nil)
}

// Run returns a run with its complete result.
func (c *Client) Run(ctx context.Context, id string) (wire.Run, error) {
	return do[wire.Run](ctx, c, "GET", runPath(id), nil)
}

// FindRun returns a run of any session with its complete result. The options work as in
// [Client.Check]. Only the operator may call it.
func (c *Client) FindRun(ctx context.Context, id string, opts CheckOptions) (wire.Run, error) {
	query := url.Values{"all_sessions": {"true"}}
	set(query, "wait", opts.Wait)
	set(query, "tail", opts.Tail)
	return do[wire.Run](ctx, c, "GET", runPath(id)+"?"+query.Encode(), nil)
}

// RemoveRun removes a finished run with its output, files and notice.
func (c *Client) RemoveRun(ctx context.Context, id string) error {
	return c.Do(ctx, "DELETE", runPath(id), nil, nil)
}

// Stop asks a run to stop. It returns when the run has ended, or after the grace period.
func (c *Client) Stop(ctx context.Context, id string, how wire.Stop) (wire.Stopped, error) {
	return do[wire.Stopped](ctx, c, "POST", runPath(id)+"/stop", how)
}

// Rerun starts a run with the tool, arguments, title and deadline of an earlier run. It
// does not support an idempotency key: if no response arrives, list the runs before you
// repeat the request.
func (c *Client) Rerun(ctx context.Context, id string) (wire.Run, error) {
	return do[wire.Run](ctx, c, "POST", runPath(id)+"/rerun", nil)
}

// Answer sends answers to questions of a run, by question key. If one answer is invalid,
// all are refused.
func (c *Client) Answer(ctx context.Context, id string, answers map[string]abi.Answer) error {
	return c.Do(ctx, "POST", runPath(id)+"/answers", wire.Answers{Answers: answers}, nil)
}

// Send sends a message to a run whose tool reads messages.
func (c *Client) Send(ctx context.Context, id string, message json.RawMessage) (wire.Message, error) {
	return do[wire.Message](ctx, c, "POST", runPath(id)+"/messages", wire.Send{Message: message})
}

// Messages returns the messages that the tool of a run has not read yet.
func (c *Client) Messages(ctx context.Context, id string) ([]wire.Message, error) {
	out, err := do[wire.Messages](ctx, c, "GET", runPath(id)+"/messages", nil)
	return out.Messages, err
}

// RunCalls returns the calls that the tool of a run made.
func (c *Client) RunCalls(ctx context.Context, id string) (wire.InnerCalls, error) {
	return do[wire.InnerCalls](ctx, c, "GET", runPath(id)+"/calls", nil)
}

// Output returns the stored part of a run's raw output. The caller must close it.
func (c *Client) Output(ctx context.Context, id string) (io.ReadCloser, error) {
	return open(ctx, c, "GET", runPath(id)+"/output")
}

// Artifact returns a file of a finished run. The name is [wire.OutputLog] or
// [wire.ResultJSON]. The caller must close the file.
func (c *Client) Artifact(ctx context.Context, id, name string) (io.ReadCloser, error) {
	return open(ctx, c, "GET", runPath(id)+"/artifacts/"+url.PathEscape(name))
}

func open(ctx context.Context, c *Client, method, path string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func runPath(id string) string { return "/v1/runs/" + url.PathEscape(id) }

// Notices returns the pending notices of finished runs. The limit is at most 200; 0 means
// 50.
func (c *Client) Notices(ctx context.Context, limit int) (wire.Notices, error) {
	query := url.Values{}
	set(query, "limit", limit)
	return do[wire.Notices](ctx, c, "GET", "/v1/notices?"+query.Encode(), nil)
}

// Acknowledge acknowledges the notices of these runs, so that they are not returned
// again. It accepts up to 1,000 ids.
func (c *Client) Acknowledge(ctx context.Context, ids ...string) error {
	return c.Do(ctx, "POST", "/v1/notices/ack", wire.Seen{TaskIDs: ids}, nil)
}

// Session returns a summary of the session's active runs, for a model whose conversation
// was truncated.
func (c *Client) Session(ctx context.Context) (wire.Session, error) {
	return do[wire.Session](ctx, c, "GET", "/v1/session", nil)
}

// EndSession ends the session and stops its parked calls.
func (c *Client) EndSession(ctx context.Context) error {
	return c.Do(ctx, "DELETE", "/v1/session", nil, nil)
}

const mediaEvents = "text/event-stream"

// A Follower receives the output and progress of a run. Nil functions are not called.
type Follower struct {
	Output func(wire.Output)
	Run    func(wire.Run) // called when the status, detail or progress has changed
	Away   func(error)    // called when the server becomes unreachable; Follow waits for it
}

// Follow reports the output and progress of a run until the run has ended, and returns
// the run. If the server restarts, Follow waits up to two minutes for it, and continues at
// the same position in the output.
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
			err = unreachable(ctx, c.address, err)
		}

		if err := retry.Wait(ctx, err); err != nil {
			return wire.Run{}, err
		}
	}
}

// read reads events until the end event. last is set to the id of the latest event.
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

// Events yields changes to the tools, and to the session's runs and schedules, from now
// on. The last element is the error that ended the stream. Missed events are not sent
// again: after reconnecting, read the current state.
func (c *Client) Events(ctx context.Context) iter.Seq2[wire.Event, error] {
	return c.events(ctx, "/v1/events")
}

// events yields the events of the stream at path.
func (c *connection) events(ctx context.Context, path string) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		resp, err := c.send(ctx, "GET", path, nil, "Accept", mediaEvents)
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
				yield(wire.Event{}, unreachable(ctx, c.address, err))
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
	data     []byte // valid until the next event
}

// maxEvent limits a line of an event, in bytes. The largest line contains a complete
// result.
const maxEvent = 64 << 20

// events reads server-sent events in the form that Toolhost writes: the data is one line.
// The last element is an error, io.EOF at the end of the stream.
func events(r io.Reader) iter.Seq2[event, error] {
	return func(yield func(event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxEvent)

		var e event
		for lines.Scan() {
			field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(field) {
			case "event":
				e.name = string(value)
			case "id":
				e.id = string(value)
			case "data":
				e.data = append(e.data[:0], value...)
			case "":
				if len(lines.Bytes()) > 0 || e.name == "" { // a comment, or nothing yet
					continue
				}
				if !yield(e, nil) {
					return
				}
				e = event{data: e.data[:0]}
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
