package httpapi

import (
	"net/http"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/identity"
)

func (a *API) getSession(r *request, _ none) (Session, error) {
	snapshot, err := a.service.Runs().Snapshot(r.Context(), r.session)
	return Session{Session: r.caller.SessionName(r.session), Snapshot: snapshot}, err
}

func (a *API) endSession(r *request, _ none) (none, error) {
	return none{}, a.service.Runs().EndSession(r.Context(), r.session)
}

func (a *API) stats(*request, none) (Stats, error) {
	return Stats{Stats: a.service.Stats(), OpenAnswers: a.open.Used()}, nil
}

func (a *API) health(*request, none) (Health, error) {
	return Health{Status: "ok", Version: a.version}, nil
}

func (a *API) ready(*request, none) (Health, error) {
	if a.draining.Load() || a.service.Closed() {
		return Health{}, refuse(CodeClosing, "the server is shutting down")
	}
	if err := a.service.StorageErr(); err != nil {
		return Health{}, refuse(CodeInternal, "%v", err)
	}
	return Health{Status: "ready", Version: a.version}, nil
}

// events streams what happens to a session's runs and schedules, and to the
// tools.
func (a *API) events(r *request) error {
	release, err := a.occupy(r.Request)
	if err != nil {
		return err
	}
	defer release()
	happens, tools := a.service.Runs().Watch(r.Context(), r.session), a.service.ToolsChanged(r.Context())
	out, err := r.stream()
	if err != nil || r.Method == http.MethodHead {
		return nil // the client is gone
	}
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for err == nil {
		select {
		case e, ok := <-happens:
			if !ok {
				return nil
			}
			err = out.send(string(e.Kind), "", newEvent(r.caller, e, time.Now()))
		case _, ok := <-tools:
			if !ok { // nothing reloads any more, and runs may still end
				tools = nil
				continue
			}
			err = out.send(string(EventTools), "", Event{Kind: EventTools})
		case <-alive.C:
			err = out.beat()
		case <-r.Context().Done():
			return nil
		}
	}
	return nil // the client is gone
}

func newEvent(c identity.Caller, e background.Event, now time.Time) Event {
	out := Event{Kind: e.Kind}
	if e.Run != nil {
		run := newRun(c, *e.Run, now)
		out.Run = &run
	}
	if e.Schedule != nil {
		schedule := newScheduleAnswer(c, *e.Schedule)
		out.Schedule = &schedule
	}
	return out
}
