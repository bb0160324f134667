package server

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/repeat"
	"github.com/toolhost/toolhost/server/telemetry"
)

// stages are the paths of a call. A check that a list leaves out is not made: SECURITY.md
// promises that a call to a tool by a tool has the checks of an agent's call.
type stages struct {
	direct callFunc // calls of agents and programs
	nested callFunc // calls to tools by tools, which wait for them
	child  callFunc // calls to tools by tools, before they become child runs
	spawn  callFunc // background runs, and schedules, that a session requests
	run    callFunc // background runs in execution
}

// openStages builds the lists. A comment names the file of each stage that is not in this
// one.
func (s *Service) openStages() {
	x, follow := s.executor, s.executor.Follower
	again := repeat.Repeater{Runs: s.runs, Follower: follow, Log: s.log}
	recording := recorder{s.figures, s.telemetry, s.audit, s.log}
	secrets := connector{s.secrets, s.catalog.Sends, s.log}
	answerAgent := answerAgent(s.agent, s.sessions)
	describe, park := describer{s.checker}.describe, parker{x, follow, s.runs, again}.park

	form := join(
		parse, // arguments
		check(localeAndKey),
	)
	checks := join(
		find(toolOf(s.catalog, s.agent), s.audit.Enabled()), // the tool
		check(admit(s.catalog.Annotations)),                 // arguments that fit, and grants
		check(limit),                                        // fuel, memory, output and time
	)
	s.stages.direct = chain(
		recording.record, // record.go: in figures, traces and the audit log
		explain,          // what is wrong, and what to do about it
		form,
		answerAgent,              // agent.go: the agent's own tools
		check(accept(&s.closed)), // nothing once the service closes
		checks,
		describe,             // dryrun.go: in a dry run, what it would do
		stored,               // park.go: which run has a large result
		repeats(again),       // runs.go: the answer of an earlier request
		approve(follow),      // approvals.go: ask a person, or hold it
		check(prepare),       // the call to the tool
		secrets.connect,      // secrets.go: ask for a secret that it lacks
		park,                 // park.go: continue in the background when it takes long
		narrate,              // narrate.go: in sentences for people
		measure(s.telemetry), // what it uses
		secrets.link,         // secrets.go: where a secret is set that it lacks
		checkResult(s.log),   // execute.go: the result
		s.execute,            // execute.go: the tool itself
	)
	s.stages.nested = chain(
		recording.record,
		explain,
		form,
		answerAgent,
		checks,
		describe,
		repeats(again),
		approve(follow),
		check(prepare),
		narrate,
		checkResult(s.log),
		s.execute,
	)
	s.stages.child = chain(
		form,
		checks,
		admitted, // runs.go: the run that it can become
	)
	s.stages.spawn = chain(
		find(func(ctx context.Context, c call) (*catalog.Tool, error) { return c.spawn.Find(ctx, c.Tool) }, false),
		check(deadline), // spawn.go: the time limit of the run
		parse,
		check(admit(s.catalog.Annotations)),
		check(prepareRun), // spawn.go: the run
		check(localeAndKey),
		plan, // spawn.go: in a dry run, what it would start
		approve(follow),
		submit, // spawn.go: start it, or store the schedule
	)
	s.stages.run = chain(
		parse,
		find(func(ctx context.Context, c call) (*catalog.Tool, error) { return x.Lookup(ctx, c.run.Run) }, false),
		check(admitStored),
		check(unchanged), // the plugin since the run was admitted or approved
		check(limit),
		check(prepare),
		begin(x), // with its sink, and as far as it has come
		narrate,
		measure(s.telemetry),
		secrets.link,
		checkResult(s.log),
		s.execute,
	)
}

// explain turns an error without a result into the result that the agent sees. A refusal
// goes to the plugin that made the call.
func explain(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		r, err := next(ctx, c)
		if _, refused := errors.AsType[*host.Refusal](err); err == nil || refused || r.Kind != "" {
			return r, err
		}
		return reason.Explain(err)
	}
}

// parse checks the form of the arguments.
func parse(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if c.DryRun = c.DryRun || InDryRun(ctx); c.DryRun {
			ctx = WithDryRun(ctx)
		}
		var err error
		if c.Parsed, err = catalog.ParseArgs(c.Tool, c.Parsed, c.Args); err != nil {
			return abi.Result{}, err
		}
		c.Args = c.Parsed.Raw()
		return next(ctx, c)
	}
}

// localeAndKey checks the locale and the key of a call.
func localeAndKey(_ context.Context, c call) (call, error) {
	err := CheckLocale(c.Locale)
	if err == nil && c.Key != "" {
		err = repeat.CheckKey(c.Session, c.Key)
	}
	return c, err
}

// accept refuses calls once the service closes. It does not refuse calls of tools,
// because runs may finish.
func accept(closed *atomic.Bool) func(context.Context, call) (call, error) {
	return func(_ context.Context, c call) (call, error) {
		if closed.Load() {
			return c, reason.ErrShutdown
		}
		return c, nil
	}
}

// find finds the tool. If its plugin is replaced before the tool has run, it calls the new
// one. If versions is set, notes name the version of the plugin.
func find(lookup func(ctx context.Context, c call) (*catalog.Tool, error), versions bool) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			for {
				tool, err := lookup(ctx, c)
				if err != nil {
					return abi.Result{}, err
				}
				c.tool, c.note.Known, c.note.Provider = tool, true, tool.Provider()
				if versions {
					c.note.Version, _ = tool.Version() // an error shows when the tool is called
				}

				r, err := next(ctx, c)
				if !errors.Is(err, plugins.ErrReplaced) {
					return r, err
				}
			}
		}
	}
}

// admitStored makes the checks of [catalog.Tool.AdmitStored] before a run.
func admitStored(_ context.Context, c call) (call, error) { return c, c.tool.AdmitStored(c.Parsed) }

// admit makes the checks of [catalog.Tool.Admit] and, for a nested call, the check of
// [catalog.Tool.AdmitCallOf].
func admit(annotate func(*catalog.Tool) Annotations) func(context.Context, call) (call, error) {
	return func(_ context.Context, c call) (_ call, err error) {
		c.Parsed, c.note.Corrected, err = c.tool.Admit(c.Parsed)
		if err == nil && c.outer != nil {
			err = c.outer.tool.AdmitCallOf(c.tool, annotate(c.tool))
		}
		c.Args = c.Parsed.Raw()
		return c, err
	}
}

// limit decides the limits of a call.
func limit(_ context.Context, c call) (call, error) { return c.limited(), nil }

// prepare builds the call to the tool.
func prepare(_ context.Context, c call) (call, error) {
	c.work = host.Call{
		ID: "call_" + uuid.NewString(), Session: c.Session, Args: c.Args, Locale: c.Locale, Policy: c.allowed.Policy(),
		Observers: host.Observers{Stdout: c.Stdout, Stderr: c.Stderr, Progress: c.Progress}, Services: host.Services{Ask: c.Ask},
	}
	if c.outer != nil {
		c.work = c.outer.of(c.work)
	}
	c.note.ID = c.work.ID
	return c, nil
}

// measure counts what tools use. The usage of a nested call is counted for the tool that
// makes the call.
func measure(t *telemetry.Telemetry) stage {
	return func(next callFunc) callFunc {
		return func(ctx context.Context, c call) (abi.Result, error) {
			r, err := next(ctx, c)
			t.Used(c.tool.Name, r.Usage.Fuel, r.Usage.CPU)
			return r, err
		}
	}
}
