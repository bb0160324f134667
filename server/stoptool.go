package server

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// stopped is the answer of stop_background.
type stopped struct {
	wire.Stopped
	excerpt
}

// stoppedSchedule is the answer of stop_background for a schedule.
type stoppedSchedule struct {
	ScheduleID      string `json:"schedule_id"`
	Status          string `json:"status"`
	Stopped         bool   `json:"stopped"`
	AlreadyFinished bool   `json:"already_finished,omitempty"` // it was stopped before, or will not fire again
	DryRun          bool   `json:"dry_run,omitempty"`
}

// stop ends a run, or disables a schedule.
func stop(ctx context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		ID       string `json:"task_id"`
		Schedule string `json:"schedule_id"`
		Force    bool   `json:"force"`
		Reason   string `json:"reason"`
	}](req.Args)
	switch {
	case err != nil:
		return nil, err
	case in.ID == "" && in.Schedule == "":
		return nil, &background.FieldError{Field: "task_id", Problem: "give a task_id, or a schedule_id"}
	case in.ID != "" && in.Schedule != "":
		return nil, &background.FieldError{Field: "schedule_id", Problem: "give either task_id or schedule_id"}
	case in.Schedule != "":
		return stopSchedule(ctx, s.Session(req.Session), in.Schedule, req.DryRun)
	}

	v := s.Session(req.Session)
	if req.DryRun {
		run, err := v.Run(ctx, in.ID)
		return stopped{Stopped: wire.Stopped{TaskID: run.TaskID, Status: run.Status, AlreadyFinished: run.Status.Terminal(), Unsaved: run.Unsaved, DryRun: true}}, err
	}

	r, err := v.stop(ctx, in.ID, "", wire.Stop{Force: in.Force, Reason: in.Reason})
	room := maxInline
	large := cut(&r, &room)
	return stopped{Stopped: shape.Stopped(r), excerpt: large}, err
}

// stopSchedule disables a schedule. A run it started continues.
func stopSchedule(ctx context.Context, v Session, id string, dryRun bool) (any, error) {
	schedule, err := v.Schedules().Get(ctx, id)
	answer := stoppedSchedule{ScheduleID: id, AlreadyFinished: !schedule.Enabled, DryRun: dryRun}
	if err == nil && !dryRun {
		schedule, err = v.Schedules().Disable(ctx, id)
	}
	if errors.Is(err, background.ErrNoSchedule) {
		return nil, noSchedule(ctx, v, id)
	}

	answer.Status, answer.Stopped = "disabled", !dryRun && !answer.AlreadyFinished
	if schedule.Enabled {
		answer.Status = "enabled"
	}

	return answer, err
}

// noSchedule lists the schedules of the session. The answer is the same for schedules
// that never existed and for those of others.
func noSchedule(ctx context.Context, v Session, id string) error {
	schedules, err := v.Schedules().List(ctx)
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
