package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// scheduleBody is a [wire.NewSchedule] whose arguments are checked while the body is
// read.
type scheduleBody struct {
	wire.NewSchedule
	Args server.Args `json:"args"`
}

// createSchedule stores a schedule.
func createSchedule(r *request, in scheduleBody) (status int, s wire.Schedule, err error) {
	if err := r.noKey("each request makes another schedule. Before you repeat it, look for the schedule with GET /v1/schedules"); err != nil {
		return 0, s, err
	}

	spawn, err := spawnRequest(in.Spawn, in.Args)
	if err != nil {
		return 0, s, err
	}
	at, err := once(in.NewSchedule)
	if err != nil {
		return 0, s, err
	}

	s, err = r.session.Schedules().New(r.Context(), server.ScheduleRequest{
		SpawnRequest: spawn, Cron: in.Cron, At: at, Timezone: in.Timezone, Overlap: in.Overlap,
	})
	if err != nil {
		return 0, s, err
	}
	if s.DryRun {
		return http.StatusOK, r.shownSchedule(s), nil
	}
	r.w.Header().Set("Location", "/v1/schedules/"+s.ScheduleID)
	return http.StatusCreated, r.shownSchedule(s), nil
}

// once returns the time of a schedule that fires once, or zero for a schedule with a cron
// expression. Exactly one of the two must be set.
func once(in wire.NewSchedule) (time.Time, error) {
	recurring := strings.TrimSpace(in.Cron) != ""
	switch {
	case recurring && in.At != "":
		return time.Time{}, invalid("scheduled_at", "not together with cron_expression: set one of the two")
	case recurring:
		return time.Time{}, nil
	case in.At == "":
		return time.Time{}, invalid("cron_expression", "required, unless scheduled_at is set")
	}

	at, err := time.Parse(time.RFC3339, in.At)
	if err != nil {
		return time.Time{}, invalid("scheduled_at", "expected a time such as 2030-01-31T09:30:00Z")
	}
	return at, nil
}

// shownSchedule returns a schedule as its caller sees it.
func (r *request) shownSchedule(s wire.Schedule) wire.Schedule {
	s.Session = r.caller.SessionName(s.Session)
	return s
}

func listSchedules(r *request, _ none) (wire.Schedules, error) {
	stored, err := r.session.Schedules().List(r.Context())
	if err != nil {
		return wire.Schedules{}, err
	}

	enabled, out := r.get("enabled") == "true", wire.Schedules{Schedules: make([]wire.Schedule, 0, len(stored))}
	for _, s := range stored {
		if s.Enabled || !enabled {
			out.Schedules = append(out.Schedules, r.shownSchedule(s))
		}
	}
	return out, nil
}

// ofSchedule returns the handler of an operation on one schedule.
func ofSchedule(do func(server.Schedules, context.Context, string) (wire.Schedule, error)) func(*request, none) (wire.Schedule, error) {
	return func(r *request, _ none) (wire.Schedule, error) {
		s, err := do(r.session.Schedules(), r.Context(), r.PathValue("schedule"))
		return r.shownSchedule(s), err
	}
}

func fireSchedule(r *request, _ none) (status int, run wire.Run, err error) {
	if err := r.noKey("each request starts another run. Before you repeat it, read the schedule's last_task_id"); err != nil {
		return 0, run, err
	}
	run, err = r.session.Schedules().Fire(r.Context(), r.PathValue("schedule"), asker)
	return r.created(run, err)
}
