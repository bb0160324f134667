package server

import (
	"context"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/agent"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/runs"
)

// The names of the agent's own tools. None of them can be spawned.
const (
	SpawnBackground   = agent.SpawnBackground
	CheckBackground   = agent.CheckBackground
	StopBackground    = agent.StopBackground
	MessageBackground = agent.MessageBackground
	ToolsSearch       = agent.ToolsSearch
)

// AgentTools returns the names of the agent's own tools.
func AgentTools() []string { return slices.Clone(agent.Names) }

// Texts that say how a caller learns of the end of a run. Which of them applies depends on
// [Request.Unnamed].
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

// answerAgent is the stage that answers the calls to the agent's own tools.
func answerAgent(own *agent.Tools, sessions *runs.Sessions) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			t := own.Lookup(c.Tool)
			if t == nil {
				return next(ctx, c)
			}

			c.note.Known = true
			var session agent.Session
			if c.Session != "" {
				session = runs.AgentSession{
					Session: runs.Session{Sessions: sessions, Name: c.Session}, Key: c.Key, Locale: c.Locale, Resumes: c.Resumes, User: c.user(),
				}
			}
			return t.Call(ctx, session, agent.Call{Args: c.Parsed, DryRun: c.DryRun, Unnamed: c.Unnamed, MaxWait: c.ParkAfter, File: fileName(c.Request, sessions.Files)})
		}
	}
}

// fileName returns the function that names a run's file for agents: the one of the caller,
// or one that returns the path below the data folder.
func fileName(req Request, kept bool) func(r engine.Run, name string) string {
	switch {
	case req.FileName != nil:
		return func(r engine.Run, name string) string { return req.FileName(r.ID, name) }
	case kept:
		return engine.Run.Path
	}
	return func(engine.Run, string) string { return "" }
}

// toolOf finds the tools of calls. Its error may suggest one of the agent's own tools.
func toolOf(tools *catalog.Catalog, own *agent.Tools) func(ctx context.Context, c call) (*catalog.Tool, error) {
	return func(ctx context.Context, c call) (*catalog.Tool, error) {
		tool, err := tools.Find(ctx, c.Tool)
		if err != nil {
			tool, err = tools.Lookup(c.Tool, own.Names()...)
		}
		return tool, err
	}
}

// offerRuns shows models the tools for runs, which are hidden while there are no runs.
func (s *Service) offerRuns() {
	if s.agent.Lookup(SpawnBackground) == nil {
		s.changed.Send()
	}
}
