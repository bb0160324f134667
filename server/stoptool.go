package server

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/pkg/background"
)

// stopped is the answer of stop_background.
type stopped struct {
	background.Stopped
	excerpt
	DryRun bool `json:"dry_run,omitempty"`
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
		return s.stopSchedule(ctx, req, in.Schedule)
	}
	if req.DryRun {
		run, err := s.runs.Get(ctx, req.Session, in.ID)
		done := run.Status.Terminal()
		return stopped{Stopped: background.Stopped{TaskID: run.ID, Status: run.Status, AlreadyFinished: done, Unsaved: run.Unsaved}, DryRun: true}, err
	}
	answer, err := s.runs.Stop(ctx, req.Session, in.ID, background.StopRequest{Force: in.Force, Reason: in.Reason})
	large := cut(&answer.Result, &answer.Content, maxInline)
	return stopped{Stopped: answer, excerpt: large}, err
}

// stopSchedule disables a schedule. A run it started goes on.
func (s *Service) stopSchedule(ctx context.Context, req Request, id string) (any, error) {
	schedule, err := s.runs.GetSchedule(ctx, req.Session, id)
	answer := stoppedSchedule{ScheduleID: id, AlreadyFinished: !schedule.Enabled, DryRun: req.DryRun}
	if err == nil && !req.DryRun {
		schedule, err = s.runs.Unschedule(ctx, req.Session, id)
	}
	if errors.Is(err, background.ErrNoSchedule) {
		return nil, s.noSchedule(ctx, req.Session, id)
	}
	answer.Status, answer.Stopped = "disabled", !req.DryRun && !answer.AlreadyFinished
	if schedule.Enabled {
		answer.Status = "enabled"
	}
	return answer, err
}

// noSchedule says which schedules there are in place of one that is not. It is
// the same for schedules that never were and for those of others.
func (s *Service) noSchedule(ctx context.Context, session, id string) error {
	listing, err := s.runs.List(ctx, session, background.ListRequest{Limit: 1})
	if err != nil {
		return err
	}
	ids := make([]string, len(listing.Schedules))
	for i, row := range listing.Schedules {
		ids[i] = row.ScheduleID
	}
	return refuse("%s", named(background.ErrNoSchedule.Error()+": "+id, ids))
}
