package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

func getSession(r *request, _ none) (wire.Session, error) {
	snapshot, err := r.session.Snapshot(r.Context())
	return wire.Session{Session: r.caller.SessionName(r.caller.Session), Snapshot: snapshot}, err
}

func endSession(r *request, _ none) (none, error) {
	return none{}, r.session.End(r.Context())
}

func listNotices(r *request, _ none) (wire.Notices, error) {
	out, err := r.session.Notices(r.Context(), r.number("limit", defaultPage))
	for i := range out.Notices {
		out.Notices[i].Session = r.caller.SessionName(out.Notices[i].Session)
		if !r.caller.Operator() {
			out.Notices[i].LogPath = "" // a user cannot open files of the host
		}
	}
	return out, err
}

// maxSeen limits the number of notices in one acknowledgment.
const maxSeen = 1000

func acknowledgeNotices(r *request, in wire.Seen) (none, error) {
	if len(in.TaskIDs) == 0 || len(in.TaskIDs) > maxSeen {
		return none{}, invalid("task_ids", "expected 1 to %d ids", maxSeen)
	}
	for _, id := range in.TaskIDs {
		if !wire.IsRunID(id) {
			return none{}, invalid("task_ids", "%q is not a run id", shorten(id))
		}
	}
	return none{}, r.session.Acknowledge(r.Context(), in.TaskIDs)
}

// Stats is the response body of GET /v1/stats: statistics of all sessions.
type Stats struct {
	server.Stats
	OpenAnswers int `json:"open_answers"` // requests in progress other than this one: calls, waits and streams
}

func getStats(r *request, _ none) (Stats, error) {
	return Stats{Stats: r.api.service.Stats(), OpenAnswers: int(r.api.active.Load()) - 1}, nil
}

func getConnections(r *request, _ none) (wire.Connections, error) {
	return wire.Connections{Connections: r.api.service.Connections().List()}, nil
}

func listHosts(r *request, _ none) (wire.Hosts, error) {
	return r.api.service.Hosts(r.Context())
}

func getHealth(r *request, _ none) (wire.Health, error) {
	return wire.Health{Status: "ok", Version: r.api.version}, nil
}

func getReadiness(r *request, _ none) (wire.Health, error) {
	if r.api.draining.Load() || r.api.service.Closed() {
		return wire.Health{}, refuse(wire.CodeClosing, textClosing)
	}
	if err := r.api.service.Ready(r.Context()); err != nil {
		if errors.Is(err, server.ErrUnreachable) {
			return wire.Health{}, err
		}
		return wire.Health{}, refuse(wire.CodeInternal, "%v", err)
	}
	return wire.Health{Status: "ready", Version: r.api.version, Warnings: r.api.service.HostWarnings()}, nil
}

// watchEvents streams changes of the tools, and of the runs and schedules of a session.
func watchEvents(r *request) error {
	happens, tools, err := r.watched()
	if err != nil {
		return err
	}
	out, err := r.stream()
	if err != nil || r.Method == http.MethodHead {
		return nil // the client has disconnected
	}
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()

	for err == nil {
		select {
		case e, ok := <-happens:
			if !ok {
				return nil
			}
			err = out.send(string(e.Kind), "", r.shownEvent(e))
		case _, ok := <-tools:
			if !ok { // no more reloads, but runs may still end
				tools = nil
				continue
			}
			err = out.send(string(wire.EventTools), "", wire.Event{Kind: wire.EventTools})
		case <-alive.C:
			err = out.beat()
		case <-r.Context().Done():
			return nil
		}
	}
	return nil // the client has disconnected
}

// watched returns the events to stream: those of the session and of the tools, or those of
// calls in all sessions that wait for approval.
func (r *request) watched() (happens <-chan wire.Event, tools <-chan struct{}, err error) {
	switch {
	case r.get("approvals") != "true":
		return r.session.Watch(r.Context()), r.api.service.ToolsChanged(r.Context()), nil
	case !r.caller.Operator():
		return nil, nil, refuse(wire.CodeForbidden, "approvals are reserved for the operator")
	}
	happens, err = r.api.service.Approvals().Watch(r.Context())
	return happens, nil, err
}

// shownEvent returns an event as its caller sees it.
func (r *request) shownEvent(e wire.Event) wire.Event {
	if e.Run != nil {
		run := r.shown(*e.Run)
		e.Run = &run
	}
	if e.Schedule != nil {
		s := r.shownSchedule(*e.Schedule)
		e.Schedule = &s
	}
	return e
}
