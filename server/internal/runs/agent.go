package runs

import (
	"cmp"
	"context"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/approval"
	"github.com/toolhost/toolhost/server/wire"
)

// An AgentSession is the session of one call to the agent's own tools. It implements
// [agent.Session].
type AgentSession struct {
	Session
	Key     string        // idempotency key of the call; empty: none
	Locale  string        // locale of the caller
	Resumes string        // run of the earlier request that the call resumes; empty: none
	User    approval.User // decides on held runs
}

func (v AgentSession) Spawn(ctx context.Context, run background.SpawnRequest) (wire.Run, error) {
	return v.spawnOrResume(ctx, v.request(run), v.User, v.Resumes)
}

func (v AgentSession) NewSchedule(ctx context.Context, r background.ScheduleRequest) (wire.Schedule, error) {
	return Schedules(v.Session).New(ctx, v.request(r.SpawnRequest), r)
}

// request returns the request for a run that the agent asks for.
func (v AgentSession) request(run background.SpawnRequest) SpawnRequest {
	return SpawnRequest{
		Tool: run.Tool, Args: run.Args, Title: run.Title, Silent: run.Silent, Timeout: run.Timeout,
		IdempotencyKey: cmp.Or(run.IdempotencyKey, v.Key), Locale: v.Locale,
	}
}

func (v AgentSession) Runs(ctx context.Context) ([]engine.Run, error) {
	return v.Manager.List(ctx, engine.Query{Session: v.Name})
}

func (v AgentSession) Check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error) {
	checked, err := v.check(ctx, r)
	for i := 0; err == nil && i < len(checked.Reports); i++ {
		err = load(ctx, v.Manager, &checked.Reports[i].Run, engine.PartResult, engine.PartContent)
	}
	return checked, err
}

func (v AgentSession) Questions(ctx context.Context, run engine.Run) map[string]abi.Question {
	return v.Follower.Questions.Open(ctx, run)
}

func (v AgentSession) Asking(ctx context.Context, suspended []engine.Run) []string {
	questions := v.Follower.Questions
	ids := questions.Runs(v.Name)
	for _, r := range suspended {
		if (r.Status == engine.StatusWaiting || questions.SharedEngine) && len(questions.Open(ctx, r)) > 0 {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (v AgentSession) Schedule(ctx context.Context, id string) (wire.Schedule, error) {
	return Schedules(v.Session).Get(ctx, id)
}

func (v AgentSession) Schedules(ctx context.Context) ([]wire.Schedule, error) {
	return Schedules(v.Session).List(ctx)
}

func (v AgentSession) DisableSchedule(ctx context.Context, id string) (wire.Schedule, error) {
	return Schedules(v.Session).Disable(ctx, id)
}
