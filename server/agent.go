package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// The names of the agent's own tools. None of them can be spawned.
const (
	SpawnBackground   = agent.SpawnBackground
	CheckBackground   = agent.CheckBackground
	StopBackground    = agent.StopBackground
	MessageBackground = agent.MessageBackground
	ToolsSearch       = agent.ToolsSearch
)

// IsAgentTool reports whether a name is that of one of the agent's own tools.
func IsAgentTool(name string) bool { return slices.Contains(agent.Names, name) }

// How the end of a run reaches its caller, see [Request.Unnamed].
const (
	EndsNotified = agent.EndsNotified
	EndsChecked  = agent.EndsChecked
)

// endsHow says how the caller learns of the end of a run.
func (r Request) endsHow() string {
	if r.Unnamed {
		return EndsChecked
	}
	return EndsNotified + ", and " + CheckBackground + " waits for it"
}

// answerAgent is the stage that answers the calls of the agent's own tools.
func (s *Service) answerAgent(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		t := s.agent.Lookup(c.Tool)
		if t == nil {
			return next(ctx, c)
		}

		c.note.Known = true
		var session agent.Session
		if c.Session != "" {
			session = agentSession{s.Session(c.Session), c.Request}
		}
		return t.Call(ctx, session, agent.Call{Args: c.Parsed, DryRun: c.DryRun, Unnamed: c.Unnamed, MaxWait: c.ParkAfter, File: fileName(c.Request, s.kept())})
	}
}

// fileName returns how agents read the files of runs: as the caller names them, or by the
// path below the data folder.
func fileName(req Request, kept bool) func(r engine.Run, name string) string {
	switch {
	case req.FileName != nil:
		return func(r engine.Run, name string) string { return req.FileName(r.ID, name) }
	case kept:
		return engine.Run.Path
	}
	return func(engine.Run, string) string { return "" }
}

// toolOf returns the tool of a call. Its error may suggest one of the agent's own tools.
func (s *Service) toolOf(ctx context.Context, c call) (*catalog.Tool, error) {
	tool, err := s.catalog.Find(ctx, c.Tool)
	if err != nil {
		tool, err = s.catalog.Lookup(c.Tool, s.agent.Names()...)
	}
	return tool, err
}

// offerRuns shows models the tools for runs, which are hidden while there are no runs.
func (s *Service) offerRuns() {
	if s.agent.Lookup(SpawnBackground) == nil {
		s.changed.Send()
	}
}

// agentSession is the session of one call of the agent's own tools. It implements
// [agent.Session].
type agentSession struct {
	Session
	req Request
}

func (v agentSession) Spawn(ctx context.Context, run background.SpawnRequest) (wire.Run, error) {
	return v.spawnOrResume(ctx, v.request(run), v.req.Resumes)
}

func (v agentSession) NewSchedule(ctx context.Context, r background.ScheduleRequest) (wire.Schedule, error) {
	return v.Session.Schedules().New(ctx, ScheduleRequest{SpawnRequest: v.request(r.SpawnRequest), Cron: r.Cron, At: r.At, Timezone: r.Timezone})
}

// request returns the request of a run that the agent asks for.
func (v agentSession) request(run background.SpawnRequest) SpawnRequest {
	return SpawnRequest{
		Tool: run.Tool, Args: run.Args, Title: run.Title, Silent: run.Silent, Timeout: run.Timeout,
		IdempotencyKey: cmp.Or(run.IdempotencyKey, v.req.Key), Locale: v.req.Locale, user: v.req.user(),
	}
}

func (v agentSession) Runs(ctx context.Context) ([]engine.Run, error) {
	return v.service.runs.List(ctx, engine.Query{Session: v.name})
}

func (v agentSession) Check(ctx context.Context, r background.CheckRequest) (background.CheckResult, error) {
	checked, err := v.check(ctx, r)
	for i := 0; err == nil && i < len(checked.Reports); i++ {
		err = v.load(ctx, &checked.Reports[i].Run, engine.PartResult, engine.PartContent)
	}
	return checked, err
}

func (v agentSession) Questions(ctx context.Context, run engine.Run) map[string]abi.Question {
	return v.service.asked.Open(ctx, run)
}

func (v agentSession) Asking(ctx context.Context, suspended []engine.Run) []string {
	asked := &v.service.asked
	ids := asked.Runs(v.name)
	for _, r := range suspended {
		if (r.Status == engine.StatusWaiting || asked.Shared) && len(asked.Open(ctx, r)) > 0 {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (v agentSession) Schedule(ctx context.Context, id string) (wire.Schedule, error) {
	return v.Session.Schedules().Get(ctx, id)
}

func (v agentSession) Schedules(ctx context.Context) ([]wire.Schedule, error) {
	return v.Session.Schedules().List(ctx)
}

func (v agentSession) DisableSchedule(ctx context.Context, id string) (wire.Schedule, error) {
	return v.Session.Schedules().Disable(ctx, id)
}
