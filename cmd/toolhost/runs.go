package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func checkCommand(a *app) *cobra.Command {
	var wait time.Duration
	var tail int
	cmd := &cobra.Command{
		Use:   "check [ID…]",
		Short: "Show background runs: status, progress, latest output, result",
		Long: `Show background runs of a server, or list them if no id is given. --wait waits
until the first of them has ended. The session is still notified of the end.

Without --session, the operator also sees runs of other sessions.`,
		Args: cobra.MaximumNArgs(20),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the first run to end, at most 9m")
	cmd.Flags().IntVar(&tail, "tail", 2048, "`characters` of the latest output, at most 16384")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		if len(args) == 0 {
			for _, name := range []string{"wait", "tail"} {
				if cmd.Flags().Changed(name) {
					return &usageError{fmt.Errorf("--%s needs a run id", name), "toolhost tasks shows the ids"}
				}
			}
			return r.listRuns(ctx, client.RunQuery{})
		}
		if wait < 0 {
			return &usageError{errors.New("--wait cannot be negative"), "leave it out to check at once"}
		}
		if err := checkRun(args...); err != nil {
			return err
		}

		check := r.client.Check
		if !cmd.Flags().Changed("session") {
			check = r.checkAny
		}
		found, err := check(ctx, args, client.CheckOptions{Wait: wait, Tail: tail})
		if err != nil {
			return err
		}
		return r.answer(found, missing(found), func() {
			for _, run := range found.Runs {
				if run.Error != nil && run.Diagnosis == nil { // set only for a single run
					if alone, err := r.client.Run(ctx, run.TaskID); err == nil {
						run.Diagnosis = alone.Diagnosis
					}
				}
				r.printRun(run)
				r.printFamily(ctx, run)
			}
		})
	})
}

// checkAny is like client.Client.Check, but also finds runs in other sessions, which
// only the operator may see.
func (r *remote) checkAny(ctx context.Context, ids []string, opts client.CheckOptions) (wire.Runs, error) {
	found, err := r.client.Check(ctx, ids, opts)
	if refused, ok := errors.AsType[*wire.Problem](err); ok && refused.Code == wire.CodeNotFound {
		found.Missing = slices.Clone(ids)
	}
	if len(found.Missing) > 1 {
		opts.Wait = 0 // they would be waited for one after the other
	}

	found.Missing = slices.DeleteFunc(found.Missing, func(id string) bool {
		run, err := r.client.FindRun(ctx, id, opts)
		if err == nil {
			found.Runs = append(found.Runs, run)
		}
		return err == nil
	})
	if len(found.Runs) > 0 {
		return found, nil
	}
	return found, err
}

func stopCommand(a *app) *cobra.Command {
	var how wire.Stop
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a background run, or disable a schedule",
		Long: `Stop a background run of a server. The run is asked to end, and is interrupted
after the server's grace period, or at once with --force. The command prints its
true state: a result that came before the stop is kept. The operator can stop runs
of any session.

With the id of a schedule, the schedule is disabled. Runs that it has started
continue.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&how.Force, "force", false, "interrupt it at once, without a grace period")
	cmd.Flags().StringVar(&how.Reason, "reason", "", "why; kept with the run")
	cmd.Flags().Bool("dry-run", false, "stop nothing; print the state")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		id := args[0]
		switch {
		case wire.IsScheduleID(id):
			s, err := r.client.Schedules().Disable(ctx, id)
			return r.reply(s, err, func() { r.printf("%s %s\n", s.ScheduleID, scheduleState(s)) })
		case !wire.IsRunID(id):
			return &usageError{fmt.Errorf("%q is not the id of a run or a schedule", id), "toolhost tasks and toolhost schedules show the ids"}
		}

		stopped, err := r.stopAny(ctx, id, how)
		return r.reply(stopped, err, func() {
			switch {
			case stopped.DryRun && !stopped.AlreadyFinished:
				r.printf("%s is %s and would be asked to end\n", stopped.TaskID, stopped.Status)
			case stopped.AlreadyFinished:
				r.printf("%s had already ended: %s\n", stopped.TaskID, stopped.Status)
			case stopped.Stopping:
				r.printf("%s is %s and was asked to end\n", stopped.TaskID, stopped.Status)
			default:
				r.printf("%s %s\n", stopped.TaskID, stopped.Status)
			}
		})
	})
}

// stopAny is like client.Client.Stop, but also finds runs in other sessions, which only
// the operator may see.
func (r *remote) stopAny(ctx context.Context, id string, how wire.Stop) (wire.Stopped, error) {
	stopped, err := r.client.Stop(ctx, id, how)
	if refused, ok := errors.AsType[*wire.Problem](err); !ok || refused.Code != wire.CodeNotFound {
		return stopped, err
	}
	run, hidden := r.client.FindRun(ctx, id, client.CheckOptions{})
	if hidden != nil {
		return stopped, err
	}

	c, err := r.inSession(run.Session)
	if err != nil {
		return stopped, err
	}
	defer c.Close()
	return c.Stop(ctx, id, how)
}

func schedulesCommand(a *app) *cobra.Command {
	var all, allSessions bool
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the schedules of a session, or of all, newest first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "include schedules that will not fire again")
	cmd.Flags().BoolVar(&allSessions, "all-sessions", false, "list the schedules of all sessions; for the operator")

	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		list := r.client.Schedules().List
		if allSessions {
			list = r.client.Schedules().ListAll
		}
		found, err := list(ctx, !all)
		return r.reply(wire.Schedules{Schedules: found}, err, func() { r.printSchedules(found) })
	})
}

func (r *remote) printSchedules(schedules []wire.Schedule) {
	rows := [][]string{{"SCHEDULE", "TITLE", "TOOL", "WHEN", "NEXT", "FIRED", "LAST RUN", "STATE"}}
	for _, s := range schedules {
		at := s.Cron + " " + s.Timezone
		if s.Cron == "" {
			at = "once at " + when(s.At)
		}
		rows = append(rows, []string{
			s.ScheduleID, short(s.Title, 40), short(s.Tool, 32), at,
			when(s.NextTriggerAt), strconv.Itoa(int(s.TriggerCount)), cmp.Or(s.LastTaskID, "-"), scheduleState(s),
		})
	}
	r.list(rows, "No schedules.")
}

func scheduleState(s wire.Schedule) string {
	switch {
	case s.Enabled:
		return "enabled"
	case s.DisabledReason != "":
		return "disabled: " + short(s.DisabledReason, 60)
	}
	return "disabled"
}

// spawnFlags holds those flags of spawn that are not part of the request.
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
	flags.StringVar(&req.Parent, "parent", "", "`id` of an active run that becomes its parent: a stop of that run stops this one too")
	flags.BoolVar(&f.silent, "silent", false, "do not notify the session of the end")
	flags.Bool("dry-run", false, "make the checks, and start or store nothing")
	flags.BoolVar(&f.wait, "wait", false, "wait for the end: live output on stderr, the result on stdout")
	flags.StringVar(&req.Cron, "cron", "", "start it repeatedly, by a cron `expression` of five fields")
	flags.StringVar(&req.At, "at", "", "start it once, at a `time` such as 2030-01-31T09:30:00Z")
	flags.StringVar(&req.Timezone, "timezone", "", "time zone of --cron, such as Europe/Vienna (default UTC)")
	flags.StringVar((*string)(&req.Overlap), "overlap", "", "with --cron, if the last run is still active: skip, queue or cancel_previous (default skip)")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) (err error) {
		if err := f.check(req); err != nil {
			return &usageError{err, "toolhost spawn --help shows the flags"}
		}
		if req.Parent != "" {
			if err := checkRun(req.Parent); err != nil {
				return err
			}
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

// check refuses flags that contradict one another.
func (f spawnFlags) check(req wire.NewSchedule) error {
	scheduled := req.Cron != "" || req.At != ""
	switch {
	case f.timeout < 0:
		return errors.New("--timeout cannot be negative")
	case req.Cron != "" && req.At != "":
		return errors.New("--cron cannot be used with --at")
	case scheduled && (f.wait || f.key != "" || req.Parent != ""):
		return errors.New("--wait, --key and --parent cannot be used with --cron or --at")
	case !scheduled && (req.Timezone != "" || req.Overlap != ""):
		return errors.New("--timezone and --overlap need --cron or --at")
	}
	return nil
}

func (r *remote) spawnRun(ctx context.Context, req wire.Spawn, f spawnFlags) error {
	answered, cancel := linger(ctx)
	defer cancel()
	run, err := r.client.Spawn(answered, req, f.key)
	switch {
	case err != nil:
		return err
	case run.DryRun:
		return r.answer(run, nil, func() {
			r.printf("would start %q: %s, at most %gs\n", oneLine(run.Title), run.Tool, run.DeadlineSeconds)
		})
	case f.wait:
		return r.attend(ctx, run)
	}

	verb := "started"
	if run.Reused {
		verb = "already existed"
	}
	return r.spawned(run, run.TaskID, fmt.Sprintf("%q %s; toolhost logs -f %s follows it", oneLine(run.Title), verb, run.TaskID))
}

// spawnGrace is how long an interrupted spawn waits for its answer. The run may already
// be stored, and only the answer contains its id.
const spawnGrace = 5 * time.Second

// linger returns a context that ends spawnGrace after ctx does.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(spawnGrace, cancel) })
	return late, func() {
		stop()
		cancel()
	}
}

// spawned prints an id, with a note for people.
func (r *remote) spawned(answer any, id, note string) error {
	return r.answer(answer, nil, func() {
		r.printf("%s\n", id)
		if terminal(r.err) > 0 {
			r.notef("%s", note)
		}
	})
}

func (r *remote) spawnSchedule(ctx context.Context, req wire.NewSchedule) error {
	s, err := r.client.Schedules().Create(ctx, req)
	if err != nil {
		return err
	}
	if s.DryRun {
		return r.answer(s, nil, func() { r.printf("would start %q first at %s\n", oneLine(s.Title), when(s.NextTriggerAt)) })
	}
	return r.spawned(s, s.ScheduleID, fmt.Sprintf("%q starts first at %s", oneLine(s.Title), when(s.NextTriggerAt)))
}

// attend follows a run until it ends: output and progress go to stderr, the result goes
// to stdout, and a failure becomes the command's error.
func (r *remote) attend(ctx context.Context, spawned wire.Run) error {
	progress := newBar(r.err)
	shown := progress.live(spawned.Tool)
	run, err := r.follow(ctx, spawned.TaskID, progress, shown, shown.take)
	if err != nil {
		if ctx.Err() != nil {
			r.notef("toolhost: the run continues: toolhost wait %s", spawned.TaskID)
		}
		return err
	}
	return r.answer(run, outcome(wire.Runs{Runs: []wire.Run{run}}), func() { r.printResult(run.Result, run.Content) })
}
