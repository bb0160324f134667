package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/wire"
)

// A spawner starts runs, and makes schedules.
type spawner interface {
	Spawn(ctx context.Context, req background.SpawnRequest) (wire.Run, error)
	NewSchedule(ctx context.Context, req background.ScheduleRequest) (wire.Schedule, error)
}

// spawnAnswer is the answer of spawn_background. Only in a dry run does it describe what
// would run: otherwise the agent knows what it asked for.
type spawnAnswer struct {
	TaskID string      `json:"task_id,omitempty"`
	Status wire.Status `json:"status,omitempty"`
	Reused bool        `json:"reused,omitempty"`
	*dryRunPlan
}

// scheduleAnswer is the answer of spawn_background with a schedule.
type scheduleAnswer struct {
	Status     string    `json:"status"`
	ScheduleID string    `json:"schedule_id,omitempty"`
	NextAt     time.Time `json:"next_trigger_at,omitzero"`
	*dryRunPlan
}

// dryRunPlan describes what a dry run would have started.
type dryRunPlan struct {
	DryRun          bool   `json:"dry_run"`
	Tool            string `json:"tool"`
	Title           string `json:"title"`
	DeadlineSeconds int64  `json:"deadline_seconds"`
}

func planOf(dryRun bool, tool, title string, deadline float64) *dryRunPlan {
	if !dryRun {
		return nil
	}
	return &dryRunPlan{true, tool, title, int64(deadline)}
}

// scheduleTime is the schedule argument of spawn_background.
type scheduleTime struct {
	Cron     string `json:"cron_expression"`
	At       string `json:"scheduled_at"`
	Timezone string `json:"timezone"`
}

// request returns the request for the schedule. Strings are trimmed, and empty ones count as
// absent. A caller that has not named its session could not list a recurring schedule later.
func (w scheduleTime) request(run background.SpawnRequest, unnamed bool) (req background.ScheduleRequest, err error) {
	req = background.ScheduleRequest{SpawnRequest: run, Cron: strings.TrimSpace(w.Cron), Timezone: strings.TrimSpace(w.Timezone)}
	at := strings.TrimSpace(w.At)
	switch {
	case strings.TrimSpace(run.Tool) == "":
		return req, &background.FieldError{Field: "tool", Problem: "required"}
	case req.Cron == "" && at == "":
		return req, &background.FieldError{Field: "schedule", Problem: "must include exactly one of cron_expression (recurring) or scheduled_at (one-shot)"}
	case req.Cron != "" && at != "":
		return req, &background.FieldError{Field: "schedule", Problem: "must not include both cron_expression and scheduled_at; provide exactly one"}
	case req.Cron != "" && unnamed:
		return req, &background.FieldError{Field: "cron_expression", Problem: "must not be used by a client that has not named its session, which could not list the schedule later: use scheduled_at, or ask the user to set the header " + wire.SessionHeader}
	case req.Cron != "":
		return req, nil
	}

	if req.At, err = time.Parse(time.RFC3339, at); err != nil {
		err = &background.FieldError{Field: "scheduled_at", Problem: fmt.Sprintf("must be RFC 3339, such as 2026-01-02T15:04:05Z, and is %.60q", at)}
	}
	return req, err
}

// spawn starts a background run, or makes a schedule.
func spawn(ctx context.Context, s Session, c Call) (any, error) {
	in, err := decode[struct {
		Tool     string          `json:"tool"`
		Args     json.RawMessage `json:"args"`
		Title    string          `json:"title"`
		Signal   *bool           `json:"signal_on_completion"`
		Schedule *scheduleTime   `json:"schedule"`
		Timeout  float64         `json:"timeout_seconds"`
		Key      string          `json:"idempotency_key"`
	}](c.Args)
	if err != nil {
		return nil, err
	}

	run := background.SpawnRequest{
		Tool: in.Tool, Args: in.Args, Title: in.Title, Timeout: seconds(in.Timeout), IdempotencyKey: in.Key,
		Silent: in.Signal != nil && !*in.Signal,
	}
	if in.Schedule == nil {
		r, err := s.Spawn(ctx, run)
		return spawnAnswer{r.TaskID, r.Status, r.Reused, planOf(c.DryRun, r.Tool, r.Title, r.DeadlineSeconds)}, err
	}

	later, err := in.Schedule.request(run, c.Unnamed)
	if err != nil {
		return nil, err
	}
	r, err := s.NewSchedule(ctx, later)
	return scheduleAnswer{"scheduled", r.ScheduleID, r.NextTriggerAt, planOf(c.DryRun, r.Tool, r.Title, r.DeadlineSeconds)}, err
}
