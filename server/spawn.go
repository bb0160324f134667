package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest says what to run in the background. Session and Tool are
// required.
type SpawnRequest struct {
	Session        string
	Tool           string          // as in Definitions; it has to support background runs
	Args           json.RawMessage // an object; nil is {}
	Parsed         Args            // the arguments of a caller that has read them already, instead of Args
	Title          string          // at most 120 characters; empty is the tool's own
	Silent         bool            // the session is not told of the end
	Timeout        time.Duration   // hard deadline; 0 is the tool's
	IdempotencyKey string          // at most 128 characters; the same key, tool and arguments return the run that exists
	By             string          // who asks, if it is not the session's agent
}

// ScheduleRequest says what to run, and when: again and again, by Cron, or
// once, at At. Exactly one of the two is set.
type ScheduleRequest struct {
	SpawnRequest
	Cron     string       // five fields
	At       time.Time    // in the future
	Timezone string       // an IANA name; empty is UTC
	Overlap  wire.Overlap // what to do while the run before is still active; empty skips
}

// Spawn starts a background run and returns at once. The checks are those of
// [Service.Call], and that the tool supports background runs.
//
// The error is an [*ArgsError], a [Refusal], an error of
// [background.Manager.Spawn], or matches [plugins.ErrNoTool], [ErrApproval] or
// host.ErrDenied.
func (s *Service) Spawn(ctx context.Context, req SpawnRequest) (background.Spawned, error) {
	tool, checked, err := s.prepare(req)
	if err == nil {
		err = s.approve(ctx, tool, Approval{Session: req.Session, Args: checked.Args})
	}
	if err != nil {
		return background.Spawned{}, err
	}
	s.hasRuns()
	return s.runs.Spawn(ctx, req.Session, checked)
}

// Schedule stores a schedule, after the checks of [Service.Spawn], whose errors
// it has. They are made again at each firing, and a person asked again where
// the tool wants that. Arguments with a secret in them (writeOnly or x-secret
// in the tool's schema) are refused: they would have to be stored.
func (s *Service) Schedule(ctx context.Context, req ScheduleRequest) (background.Schedule, error) {
	tool, checked, err := s.prepareSchedule(req)
	if err != nil {
		return background.Schedule{}, err
	}
	planned, err := s.runs.Plan(req.Session, checked)
	if err == nil { // nobody is asked about what is refused anyway
		err = s.approve(ctx, tool, Approval{Session: req.Session, Args: checked.Args, Schedule: &planned})
	}
	if err != nil {
		return background.Schedule{}, err
	}
	s.hasRuns()
	return s.runs.Schedule(ctx, req.Session, checked)
}

// plan makes all checks of a schedule, and returns it as it would be.
func (s *Service) plan(req ScheduleRequest) (background.Schedule, error) {
	_, checked, err := s.prepareSchedule(req)
	if err != nil {
		return background.Schedule{}, err
	}
	return s.runs.Plan(req.Session, checked)
}

// prepare makes the checks of a spawn, but for a person's approval: nobody is
// asked about what is refused anyway.
func (s *Service) prepare(req SpawnRequest) (tool *plugins.Tool, checked background.SpawnRequest, err error) {
	for {
		tool, checked, err = s.prepareNow(req)
		if !errors.Is(err, plugins.ErrReplaced) { // else there is another one
			return tool, checked, err
		}
	}
}

// prepareNow makes the checks for the plugin of the moment. Their order decides
// which error an agent sees first: what it named, before what it asked for.
func (s *Service) prepareNow(req SpawnRequest) (tool *plugins.Tool, checked background.SpawnRequest, err error) {
	name := strings.TrimSpace(req.Tool)
	if tool, err = s.target(name); err != nil {
		return nil, checked, err
	}
	timeout, err := s.deadline(req.Timeout, tool.Tool)
	if err != nil {
		return nil, checked, err
	}
	args, err := parseArgs(tool.Name, req.Parsed, req.Args)
	if err == nil {
		err = s.admit(tool, args)
	}
	if err != nil {
		return nil, checked, err
	}
	version, err := s.version(tool)
	if err != nil {
		return nil, checked, err
	}
	checked = background.SpawnRequest{
		Tool: name, Version: version, Args: args.Raw(), Title: cmp.Or(strings.TrimSpace(req.Title), titleOf(tool)),
		Silent: req.Silent, Timeout: timeout, IdempotencyKey: req.IdempotencyKey, By: req.By,
	}
	if public, secret := tool.PublicArgs(args.Raw()); secret {
		checked.Stored = public
	}
	return tool, checked, nil
}

func (s *Service) prepareSchedule(req ScheduleRequest) (tool *plugins.Tool, checked background.ScheduleRequest, err error) {
	tool, run, err := s.prepare(req.SpawnRequest)
	switch {
	case err != nil:
		return nil, checked, err
	case run.Stored != nil:
		return nil, checked, refuse("%s cannot be scheduled with these arguments: they have a secret in them, and secrets are not stored", run.Tool)
	case run.IdempotencyKey != "":
		return nil, checked, &background.FieldError{Field: "idempotency_key", Problem: "a schedule takes none"}
	}
	return tool, background.ScheduleRequest{
		Tool: run.Tool, Version: run.Version, Args: run.Args, Title: run.Title, Silent: run.Silent, Timeout: run.Timeout, By: run.By,
		Cron: req.Cron, At: req.At, Timezone: req.Timezone, Overlap: background.Overlap(req.Overlap),
	}, nil
}

// target is the tool to run in the background.
func (s *Service) target(name string) (*plugins.Tool, error) {
	switch {
	case name == "":
		return nil, &background.FieldError{Field: "tool", Problem: "required"}
	case slices.Contains(agentNames, name):
		return nil, refuse("%s cannot be spawned: call it directly", name)
	}
	tool, err := s.registry.Lookup(name)
	if err == nil && !tool.Tool.Hints.SupportsBackground {
		err = refuse("%s does not support background runs: call it directly", name)
	}
	return tool, err
}

// maxTitle bounds the title of a run, in characters.
const maxTitle = 120

// titleOf is the title of a tool, cut to what a run may have.
func titleOf(tool *plugins.Tool) string {
	title := []rune(strings.TrimSpace(tool.Tool.Title))
	return strings.TrimSpace(string(title[:min(len(title), maxTitle)]))
}
