package server

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/record"
	"github.com/toolhost/toolhost/server/telemetry"
)

// A call is one call of a tool on its way through the stages. A stage passes a changed copy
// on.
type call struct {
	Request
	outer  *origin      // the call whose tool makes this one; nil: an agent's
	run    *running     // the run that is executed; nil: somebody calls
	note   *record.Note // what is learned of it
	tool   *callable    // after find
	limits Limits       // after limit
	work   host.Call    // of the tool; after limit
}

// A next passes a call to the stages that follow.
type next func(ctx context.Context, c call) (abi.Result, error)

// A stage answers a call, or passes it on, and may change the answer. An error without a
// result is turned into one by explained, or ends the run that is executed.
type stage func(next) next

// chain joins stages, the first first. The last one passes no call on.
func chain(stages ...stage) (n next) {
	for _, s := range slices.Backward(stages) {
		n = s(n)
	}
	return n
}

// stages are the ways of a call. What a list leaves out is not checked: SECURITY.md promises
// that a call of a tool by a tool has the checks of an agent's call.
type stages struct {
	direct next // of an agent or a program
	nested next // of a tool, by another one that waits for it
	run    next // of a background run that is executed
}

// openStages makes the lists.
func (s *Service) openStages() {
	s.follower = follower{
		runs: s.runs, engine: s.engine, approvals: ApprovalsOf(s), asked: &s.asked,
		sessions: s.Session, settings: s.now, version: s.version, offer: s.offerRuns, log: s.log,
	}
	x, follow := executor{s}, s.follower
	recorded := recorder{s.figures, s.telemetry, s.audit, s.log}.record
	find := finder{s.find, s.audit.Kept()}.find
	describe, park := describer{s.define, follow.approvals}.describe, parker{follow, x.attach}.park
	admit, measure, check := admitted(s.annotate), measured(s.telemetry), checked(s.log)

	s.stages = stages{
		direct: chain(
			recorded,          // in figures, traces and the audit log
			explained,         // what is wrong, and what to do about it
			parse,             // arguments, locale and key
			s.answerAgent,     // the agent's own tools
			accept(&s.closed), // nothing once the service closes
			find,              // the tool
			admit,             // arguments that fit, and grants
			describe,          // in a dry run: what it would do
			follow.repeat,     // the answer of an earlier request
			follow.approve,    // ask a person, or hold it
			limit,             // fuel, memory, output and time
			s.links.connect,   // ask for a secret that it lacks
			park,              // go on in the background when it takes long
			narrate,           // in sentences for people
			measure,           // what it uses
			s.links.link,      // where a secret is set that it lacks
			check,             // the result
			s.execute,
		),
		nested: chain(recorded, explained, parse, s.answerAgent, find, admit, describe, follow.approve, limit, check, s.execute),
		run:    chain(parse, finder{x.find, false}.find, admit, x.unchanged, limit, x.begin, narrate, measure, s.links.link, check, s.execute),
	}
}

// explained turns an error without a result into what the agent sees.
func explained(next next) next {
	return func(ctx context.Context, c call) (abi.Result, error) {
		r, err := next(ctx, c)
		if err != nil && r.Kind == "" {
			return reason.Explain(err)
		}
		return r, err
	}
}

// parse checks all that can be checked of a call without its tool.
func parse(next next) next {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if c.DryRun = c.DryRun || InDryRun(ctx); c.DryRun {
			ctx = WithDryRun(ctx)
		}
		var err error
		if c.Parsed, err = parseArgs(c.Tool, c.Parsed, c.Args); err != nil {
			return abi.Result{}, err
		}
		c.Args = c.Parsed.Raw()

		if err := CheckLocale(c.Locale); err != nil {
			return abi.Result{}, err
		}
		if c.Key != "" {
			if err := checkKey(c.Request); err != nil {
				return abi.Result{}, err
			}
		}
		return next(ctx, c)
	}
}

// accept refuses calls once the service closes. Those of tools go on: what runs may finish.
func accept(closed *atomic.Bool) stage {
	return func(next next) next {
		return func(ctx context.Context, c call) (abi.Result, error) {
			if closed.Load() {
				return abi.Result{}, reason.ErrShutdown
			}
			return next(ctx, c)
		}
	}
}

// A finder finds the tools of calls.
type finder struct {
	lookup  func(ctx context.Context, c call) (*callable, error)
	audited bool // the version of the tool is wanted
}

// find is the stage that finds the tool. If its plugin is replaced before it has run, the new
// one is called.
func (f finder) find(next next) next {
	return func(ctx context.Context, c call) (abi.Result, error) {
		for {
			tool, err := f.lookup(ctx, c)
			if err != nil {
				return abi.Result{}, err
			}
			c.tool, c.note.Known, c.note.Provider = tool, true, tool.provider()
			if f.audited {
				c.note.Version, _ = tool.Version() // an error is found when it is called
			}

			r, err := next(ctx, c)
			if !errors.Is(err, plugins.ErrReplaced) {
				return r, err
			}
		}
	}
}

// admitted makes the checks of [callable.admit], and those of the tool that makes the call.
func admitted(annotate func(*callable) Annotations) stage {
	return func(next next) next {
		return func(ctx context.Context, c call) (abi.Result, error) {
			err := c.tool.admit(c.Parsed)
			if err == nil && c.outer != nil {
				err = c.outer.admit(c.tool, annotate(c.tool))
			}
			if err != nil {
				return abi.Result{}, err
			}
			return next(ctx, c)
		}
	}
}

// limit decides what a call may use.
func limit(next next) next {
	return func(ctx context.Context, c call) (abi.Result, error) {
		c.limits = c.tool.rules.limits(c.Limits, c.tool.Tool)
		c.work = host.Call{
			ID: "call_" + uuid.NewString(), Session: c.Session, Args: c.Args, Locale: c.Locale, Policy: c.limits.policy(),
			Observers: host.Observers{Stdout: c.Stdout, Stderr: c.Stderr, Progress: c.Progress}, Services: host.Services{Ask: c.Ask},
		}
		if c.outer != nil {
			c.work = c.outer.of(c.work)
		}
		c.note.ID = c.work.ID
		return next(ctx, c)
	}
}

// measured counts what tools have used. The use of a call that a tool makes is part of that
// tool's.
func measured(t *telemetry.Telemetry) stage {
	return func(next next) next {
		return func(ctx context.Context, c call) (abi.Result, error) {
			r, err := next(ctx, c)
			t.Used(c.tool.Name, r.Usage.Fuel, r.Usage.CPU)
			return r, err
		}
	}
}
