package agent

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// A stopper stops runs, and disables schedules. In a dry run it changes nothing. An empty by
// means the agent.
type stopper interface {
	Stop(ctx context.Context, id, by string, how wire.Stop) (wire.Stopped, error)
	Schedule(ctx context.Context, id string) (wire.Schedule, error)
	Schedules(ctx context.Context) ([]wire.Schedule, error)
	DisableSchedule(ctx context.Context, id string) (wire.Schedule, error)
}

// stopAnswer is the answer of stop_background.
type stopAnswer struct {
	wire.Stopped
	shape.Omission
}

// scheduleStopAnswer is the answer of stop_background for a schedule.
type scheduleStopAnswer struct {
	ScheduleID      string `json:"schedule_id"`
	Status          string `json:"status"`
	Stopped         bool   `json:"stopped"`
	AlreadyFinished bool   `json:"already_finished,omitempty"` // it was stopped before, or will not fire again
	DryRun          bool   `json:"dry_run,omitempty"`
}

// stop ends a run, or disables a schedule.
func stop(ctx context.Context, s Session, c Call) (any, error) {
	in, err := decode[struct {
		ID       string `json:"task_id"`
		Schedule string `json:"schedule_id"`
		Force    bool   `json:"force"`
		Reason   string `json:"reason"`
	}](c.Args)
	switch {
	case err != nil:
		return nil, err
	case in.ID == "" && in.Schedule == "":
		return nil, &background.FieldError{Field: "task_id", Problem: "give a task_id, or a schedule_id"}
	case in.ID != "" && in.Schedule != "":
		return nil, &background.FieldError{Field: "schedule_id", Problem: "give either task_id or schedule_id"}
	case in.Schedule != "":
		return stopSchedule(ctx, s, in.Schedule, c.DryRun)
	}

	answer, err := s.Stop(ctx, in.ID, "", wire.Stop{Force: in.Force, Reason: in.Reason})
	room := maxInline
	omitted := shape.Omit(&answer.Result, &answer.Content, &room)
	return stopAnswer{answer, omitted}, err
}

// stopSchedule disables a schedule. A run it started continues.
func stopSchedule(ctx context.Context, s stopper, id string, dryRun bool) (any, error) {
	schedule, err := s.Schedule(ctx, id)
	answer := scheduleStopAnswer{ScheduleID: id, AlreadyFinished: !schedule.Enabled, DryRun: dryRun}
	if err == nil && !dryRun {
		schedule, err = s.DisableSchedule(ctx, id)
	}
	if errors.Is(err, background.ErrNoSchedule) {
		return nil, noSchedule(ctx, s, id)
	}

	answer.Status, answer.Stopped = "disabled", !dryRun && !answer.AlreadyFinished
	if schedule.Enabled {
		answer.Status = "enabled"
	}

	return answer, err
}

// noSchedule returns the error for an unknown schedule, which names the schedules of the
// session. It is the same for schedules that never existed and for those of other sessions.
func noSchedule(ctx context.Context, from stopper, id string) error {
	schedules, err := from.Schedules(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, s := range schedules {
		if s.Enabled {
			ids = append(ids, s.ScheduleID)
		}
	}
	return reason.Refuse("%s", reason.Named(background.ErrNoSchedule.Error()+": "+id, ids))
}
