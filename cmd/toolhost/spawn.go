package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/wire"
)

// spawnFlags are the flags of spawn that are not part of the request.
type spawnFlags struct {
	key          string
	timeout      time.Duration
	silent, wait bool
}

func spawnCommand(a *app) *cobra.Command {
	var f spawnFlags
	var req wire.NewSchedule
	cmd := &cobra.Command{
		Use:   "spawn TOOL [ARGS|@FILE|-]",
		Short: "Start a tool as a background run of a server, now or on a schedule",
		Long: `Start a tool as a background run of a server (see toolhost serve), and print the
id of the run. The run does not depend on this command: use the id with toolhost
check, wait, logs and stop. With --cron or --at, the command creates a schedule
and prints its id.`,
		Example: `  toolhost spawn primes '{"limit":2000000}' --title "Primes below 2 million"
  toolhost wait $(toolhost spawn primes '{"limit":2000000}')
  toolhost spawn report --cron '0 9 * * mon-fri' --timezone Europe/Vienna`,
		Args: cobra.RangeArgs(1, 2),
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Title, "title", "", "title of the run (default: the tool's)")
	flags.DurationVar(&f.timeout, "timeout", 0, "deadline of the run (default: the tool's)")
	flags.StringVar(&f.key, "key", "", "idempotency `key`: the same key, tool and arguments return the same run")
	flags.BoolVar(&f.silent, "silent", false, "do not notify the session of the end")
	flags.BoolVar(&f.wait, "wait", false, "wait for the end: live output on stderr, the result on stdout")
	flags.StringVar(&req.Cron, "cron", "", "start it repeatedly, by a cron `expression` of five fields")
	flags.StringVar(&req.At, "at", "", "start it once, at a `time` such as 2030-01-31T09:30:00Z")
	flags.StringVar(&req.Timezone, "timezone", "", "time zone of --cron, such as Europe/Vienna (default UTC)")
	flags.StringVar((*string)(&req.Overlap), "overlap", "", "with --cron, if the last run is still active: skip, queue or cancel_previous (default skip)")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) (err error) {
		if err := f.check(req); err != nil {
			return &usageError{err, "toolhost spawn --help shows the flags"}
		}
		req.Tool, req.TimeoutSeconds = args[0], f.timeout.Seconds()
		if req.Args, err = r.arguments(ctx, args[1:]); err != nil {
			return err
		}
		if f.silent {
			req.SignalOnCompletion = new(bool)
		}
		if req.Cron != "" || req.At != "" {
			return r.spawnSchedule(ctx, req)
		}
		return r.spawnRun(ctx, req.Spawn, f)
	})
}

// check refuses flags that contradict each other.
func (f spawnFlags) check(req wire.NewSchedule) error {
	scheduled := req.Cron != "" || req.At != ""
	switch {
	case f.timeout < 0:
		return errors.New("--timeout cannot be negative")
	case req.Cron != "" && req.At != "":
		return errors.New("--cron cannot be used with --at")
	case scheduled && (f.wait || f.key != ""):
		return errors.New("--wait and --key cannot be used with --cron or --at")
	case !scheduled && (req.Timezone != "" || req.Overlap != ""):
		return errors.New("--timezone and --overlap need --cron or --at")
	}
	return nil
}

func (r *remote) spawnRun(ctx context.Context, req wire.Spawn, f spawnFlags) error {
	run, err := r.client.Spawn(ctx, req, f.key)
	switch {
	case err != nil:
		return err
	case f.wait:
		return r.attend(ctx, run.TaskID)
	}

	return r.answer(run, nil, func() {
		r.printf("%s\n", run.TaskID)
		if terminal(r.err) > 0 {
			verb := "started"
			if run.Reused {
				verb = "already existed"
			}
			r.notef("%q %s; toolhost logs -f %s follows it", oneLine(run.Title), verb, run.TaskID)
		}
	})
}

func (r *remote) spawnSchedule(ctx context.Context, req wire.NewSchedule) error {
	s, err := r.client.CreateSchedule(ctx, req)
	if err != nil {
		return err
	}

	return r.answer(s, nil, func() {
		r.printf("%s\n", s.ScheduleID)
		if terminal(r.err) > 0 {
			r.notef("%q starts first at %s", oneLine(s.Title), when(s.NextTriggerAt))
		}
	})
}

// attend follows a run to its end: output and progress on stderr, the result on
// stdout, the failure as the command's error.
func (r *remote) attend(ctx context.Context, id string) error {
	progress := newBar(r.err)
	shown := progress.output(r.err)
	run, err := r.follow(ctx, id, progress, shown, shown.take)
	if err != nil {
		if ctx.Err() != nil {
			r.notef("toolhost: the run continues: toolhost wait %s", id)
		}
		return err
	}
	return r.answer(run, outcome(wire.Runs{Runs: []wire.Run{run}}), func() { r.printResult(run.Result, run.Content) })
}
