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
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/wire"
)

// SpawnRequest says what to run in the background. Only Tool is required.
type SpawnRequest struct {
	Tool           string          // as in Definitions; it has to support background runs
	Args           json.RawMessage // an object; nil is {}
	Parsed         Args            // the arguments of a caller that has read them already, instead of Args
	Title          string          // at most 120 characters; empty is the tool's own
	Silent         bool            // the session is not notified of the end
	Timeout        time.Duration   // hard deadline; 0 is the tool's
	IdempotencyKey string          // at most 128 characters; the same key, tool and arguments return the run that exists
	By             string          // who asks, if it is not the session's agent
}

// ScheduleRequest says what to run, and when: again and again, by Cron, or
// once, at At. Set exactly one of the two.
type ScheduleRequest struct {
	SpawnRequest
	Cron     string       // five fields
	At       time.Time    // in the future
	Timezone string       // an IANA name; empty is UTC
	Overlap  wire.Overlap // what to do while the last run is still active; empty skips the firing
}

// Spawn starts a background run and returns at once. The checks are those of
// [Service.Call], and that the tool supports background runs. Reused says that
// the run is an earlier one with the same idempotency key.
//
// The error is an [*ArgsError], a [Refusal], or has another reason: see
// [ReasonOf].
func (v Session) Spawn(ctx context.Context, req SpawnRequest) (wire.Run, error) {
	tool, checked, err := v.prepare(req)
	if err == nil {
		err = v.service.approve(ctx, tool, Approval{Session: v.name, Args: checked.Args})
	}
	if err != nil {
		return wire.Run{}, err
	}

	r, err := v.service.runs.Spawn(ctx, v.name, checked)
	if err != nil {
		return wire.Run{}, err
	}

	run := newRun(r.Run, time.Now())
	run.Args, run.Reused = background.Redact(r.Args), r.Reused
	return run, nil
}

// NewSchedule stores a schedule, after the checks of [Session.Spawn]. They are
// repeated at each firing, and a person is asked again where the tool requires
// approval. Arguments that contain a secret (writeOnly or x-secret in the tool's
// schema) are refused, because they would have to be stored.
func (v Session) NewSchedule(ctx context.Context, req ScheduleRequest) (wire.Schedule, error) {
	tool, checked, err := v.prepareSchedule(req)
	if err != nil {
		return wire.Schedule{}, err
	}
	planned, err := v.service.runs.Plan(v.name, checked)
	if err == nil { // nobody is asked about a schedule that would be refused anyway
		plan := newSchedule(planned)
		err = v.service.approve(ctx, tool, Approval{Session: v.name, Args: checked.Args, Schedule: &plan})
	}
	if err != nil {
		return wire.Schedule{}, err
	}

	stored, err := v.service.runs.Schedule(ctx, v.name, checked)
	return newWholeSchedule(stored), err
}

// plan makes all checks of a schedule, and returns it as it would be stored.
func (v Session) plan(req ScheduleRequest) (wire.Schedule, error) {
	_, checked, err := v.prepareSchedule(req)
	if err != nil {
		return wire.Schedule{}, err
	}
	planned, err := v.service.runs.Plan(v.name, checked)
	return newSchedule(planned), err
}

// prepare makes the checks of a spawn, but for a person's approval: nobody is
// asked about what is refused anyway.
func (v Session) prepare(req SpawnRequest) (tool *plugins.Tool, checked background.SpawnRequest, err error) {
	for {
		tool, checked, err = v.prepareNow(req)
		if !errors.Is(err, plugins.ErrReplaced) { // else there is another one
			return tool, checked, err
		}
	}
}

// prepareNow makes the checks for the plugin of the moment. Their order decides
// which error an agent sees first: what it named, before what it asked for.
func (v Session) prepareNow(req SpawnRequest) (tool *plugins.Tool, checked background.SpawnRequest, err error) {
	name := strings.TrimSpace(req.Tool)
	if tool, err = v.service.target(name); err != nil {
		return nil, checked, err
	}

	timeout, err := v.service.rules.deadline(req.Timeout, tool.Tool)
	if err != nil {
		return nil, checked, err
	}

	args, err := parseArgs(tool.Name, req.Parsed, req.Args)
	if err == nil {
		err = v.service.admit(tool, args)
	}
	if err != nil {
		return nil, checked, err
	}

	version, err := v.service.version(tool)
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

func (v Session) prepareSchedule(req ScheduleRequest) (tool *plugins.Tool, checked background.ScheduleRequest, err error) {
	tool, run, err := v.prepare(req.SpawnRequest)
	switch {
	case err != nil:
		return nil, checked, err
	case run.Stored != nil:
		return nil, checked, refuse("%s cannot be scheduled with these arguments: they contain a secret, and secrets are not stored", run.Tool)
	case run.IdempotencyKey != "":
		return nil, checked, &background.FieldError{Field: "idempotency_key", Problem: "not allowed for a schedule"}
	}

	return tool, background.ScheduleRequest{
		Tool: run.Tool, Version: run.Version, Args: run.Args, Title: run.Title, Silent: run.Silent, Timeout: run.Timeout, By: run.By,
		Cron: req.Cron, At: req.At, Timezone: req.Timezone, Overlap: engine.Overlap(req.Overlap),
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
