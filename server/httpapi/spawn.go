package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

// request is the spawn as the service takes it.
func (in Spawn) request(r *request) (server.SpawnRequest, error) {
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds)
	if err == nil {
		err = checkArgs(in.Tool, in.Args)
	}
	return server.SpawnRequest{
		Session: r.session, Tool: in.Tool, Args: in.Args, Title: in.Title, Timeout: timeout, By: asker,
		Silent: in.SignalOnCompletion != nil && !*in.SignalOnCompletion,
	}, err
}

// asker is who asks for what comes in by this door, as records say it.
const asker = "api"

// spawn starts a run.
func (a *API) spawn(r *request, in Spawn) (Run, error) {
	req, err := in.request(r)
	if err != nil {
		return Run{}, err
	}
	if req.IdempotencyKey, err = r.key(); err != nil {
		return Run{}, err
	}
	spawned, err := a.service.Spawn(r.Context(), req)
	if err != nil {
		return Run{}, err
	}
	run := newRun(r.caller, spawned.Run, time.Now())
	run.Args, run.Reused = background.Redact(spawned.Args), spawned.Reused
	if run.Reused {
		r.status = http.StatusOK
	}
	r.w.Header().Set("Location", "/v1/runs/"+run.TaskID)
	return run, nil
}

// schedule stores a schedule.
func (a *API) schedule(r *request, in NewSchedule) (Schedule, error) {
	if err := r.noKey("for a schedule is made each time: before you repeat the request see whether it is there, GET /v1/schedules"); err != nil {
		return Schedule{}, err
	}
	spawn, err := in.Spawn.request(r)
	if err != nil {
		return Schedule{}, err
	}
	at, err := in.once()
	if err != nil {
		return Schedule{}, err
	}
	req := server.ScheduleRequest{SpawnRequest: spawn, Cron: in.Cron, At: at, Timezone: in.Timezone, Overlap: in.Overlap}
	stored, err := a.service.Schedule(r.Context(), req)
	if err != nil {
		return Schedule{}, err
	}
	r.w.Header().Set("Location", "/v1/schedules/"+stored.ID)
	return detailed(r.caller, stored), nil
}

// once is the time of a schedule that fires once, and zero for one with a cron
// expression. That there is one of the two is checked here too, as a model has
// them in a field that is not in this body.
func (in NewSchedule) once() (time.Time, error) {
	recurring := strings.TrimSpace(in.Cron) != ""
	switch {
	case recurring && in.At != "":
		return time.Time{}, invalid("scheduled_at", "not beside a cron_expression: give one of the two")
	case recurring:
		return time.Time{}, nil
	case in.At == "":
		return time.Time{}, invalid("cron_expression", "required, or in its place scheduled_at")
	}
	at, err := time.Parse(time.RFC3339, in.At)
	if err != nil {
		return time.Time{}, invalid("scheduled_at", "expected a time such as 2030-01-31T09:30:00Z")
	}
	return at, nil
}

// detailed is a schedule with its arguments.
func detailed(c identity.Caller, s background.Schedule) Schedule {
	out := newScheduleAnswer(c, s)
	out.Args = background.Redact(s.Args)
	return out
}

func (a *API) schedules(r *request, _ none) (Schedules, error) {
	stored, err := a.service.Runs().Schedules(r.Context(), r.session)
	if err != nil {
		return Schedules{}, err
	}
	enabled, out := r.yes("enabled"), Schedules{Schedules: make([]Schedule, 0, len(stored))}
	for _, s := range stored {
		if s.Enabled || !enabled {
			out.Schedules = append(out.Schedules, newScheduleAnswer(r.caller, s))
		}
	}
	return out, nil
}

func (a *API) getSchedule(r *request, _ none) (Schedule, error) {
	id, err := r.schedule()
	if err != nil {
		return Schedule{}, err
	}
	stored, err := a.service.Runs().GetSchedule(r.Context(), r.session, id)
	return detailed(r.caller, stored), err
}

func (a *API) unschedule(r *request, _ none) (Schedule, error) {
	id, err := r.schedule()
	if err != nil {
		return Schedule{}, err
	}
	stored, err := a.service.Runs().Unschedule(r.Context(), r.session, id)
	return detailed(r.caller, stored), err
}
