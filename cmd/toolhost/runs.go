package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
until the first of them has ended. The session is still notified of the end.`,
		Args: cobra.MaximumNArgs(20),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the first run to end, at most 9m")
	cmd.Flags().IntVar(&tail, "tail", 2048, "`characters` of the latest output, at most 16384")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		for _, name := range []string{"wait", "tail"} {
			if len(args) == 0 && cmd.Flags().Changed(name) {
				return &usageError{fmt.Errorf("--%s needs a run id", name), "toolhost tasks shows the ids"}
			}
		}
		if wait < 0 {
			return &usageError{errors.New("--wait cannot be negative"), "leave it out to check at once"}
		}
		if len(args) == 0 {
			return r.listRuns(ctx, client.RunQuery{})
		}
		if err := checkRun(args...); err != nil {
			return err
		}

		found, err := r.client.Check(ctx, args, client.CheckOptions{Wait: wait, Tail: tail})
		if err != nil {
			return err
		}
		return r.answer(found, missing(found), func() {
			for _, run := range found.Runs {
				r.printRun(run)
			}
		})
	})
}

// printRun prints a run for people.
func (u *ui) printRun(run wire.Run) {
	u.printf("%s %s %q (%s): %s, %s", icon(run.Status), run.TaskID, oneLine(run.Title), oneLine(run.Tool), state(run), elapsed(run.ElapsedSeconds))
	if run.ExitCode != nil {
		u.printf(", exit %d", *run.ExitCode)
	}
	if text := doing(run); text != "" {
		u.printf(", %s", text)
	}
	u.printf("\n")

	if run.Error != nil {
		u.printf("  error: %s\n", oneLine(run.Error.Message))
	}
	if s := run.Stopping; s != nil {
		u.printf("  stop requested by %s at %s %s\n", oneLine(s.By), when(s.At), oneLine(s.Reason))
	}
	if run.Attempt > 1 {
		u.printf("  attempt %d\n", run.Attempt)
	}
	questions(run, func(_, text string) { u.printf("  waits for its user: %s\n", text) })

	if out := run.Output; out != nil && out.Text != "" {
		if out.OmittedBytes > 0 {
			u.printf("  output, after %d bytes that are not shown:\n", out.OmittedBytes)
		} else {
			u.printf("  output:\n")
		}
		for line := range strings.Lines(out.Text) {
			u.printf("  | %s\n", strings.TrimSuffix(line, "\n"))
		}
	}

	if run.Result != nil || len(run.Content) > 0 {
		u.printf("  result: ")
		u.printResult(run.Result, run.Content)
	}
}

func stopCommand(a *app) *cobra.Command {
	var how wire.Stop
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a background run, or disable a schedule",
		Long: `Stop a background run of a server. The run is asked to end, and is interrupted
after the server's grace period, or at once with --force. The answer is its true
state: a result that came first is kept.

With the id of a schedule, the schedule is disabled. Runs that it has started
continue.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&how.Force, "force", false, "interrupt it at once, without a grace period")
	cmd.Flags().StringVar(&how.Reason, "reason", "", "why; kept with the run")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		id := args[0]
		switch {
		case wire.IsScheduleID(id):
			s, err := r.client.DisableSchedule(ctx, id)
			if err != nil {
				return err
			}
			return r.answer(s, nil, func() { r.printf("%s %s\n", s.ScheduleID, scheduleState(s)) })
		case !wire.IsRunID(id):
			return &usageError{fmt.Errorf("%q is not the id of a run or a schedule", id), "toolhost tasks and toolhost schedules show the ids"}
		}

		stopped, err := r.client.Stop(ctx, id, how)
		if err != nil {
			return err
		}
		return r.answer(stopped, nil, func() {
			switch {
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

func tasksCommand(a *app) *cobra.Command {
	var q client.RunQuery
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the background runs of a session, newest first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&q.Active, "active", false, "only runs that have not ended")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "the most runs to list, up to 200")
	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error { return r.listRuns(ctx, q) })
}

func (r *remote) listRuns(ctx context.Context, q client.RunQuery) error {
	found, err := r.client.Runs(ctx, q)
	if err != nil {
		return err
	}

	return r.answer(found, nil, func() {
		if len(found.Runs) == 0 {
			r.printf("No background tasks.\n")
			return
		}
		total := fmt.Sprintf("%d total", len(found.Runs))
		if found.Next != "" {
			total = fmt.Sprintf("the newest %d", len(found.Runs))
		}
		r.printf("Background tasks (%s):\n\n", total)

		var rows [][]string
		for _, run := range found.Runs {
			row := []string{" " + icon(run.Status) + " " + run.TaskID, short(run.Title, 40), short(run.Tool, 32), state(run), elapsed(run.ElapsedSeconds)}
			if text := doing(run); text != "" {
				row = append(row, short(text, 60))
			}
			rows = append(rows, row)
		}
		r.table(rows)
	})
}

func schedulesCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the schedules of a session, newest first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "include schedules that will not fire again")

	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) error {
		found, err := r.client.Schedules(ctx, !all)
		if err != nil {
			return err
		}
		return r.answer(wire.Schedules{Schedules: found}, nil, func() { r.printSchedules(found) })
	})
}

func (r *remote) printSchedules(schedules []wire.Schedule) {
	if len(schedules) == 0 {
		r.printf("No schedules.\n")
		return
	}

	rows := [][]string{{"SCHEDULE", "TITLE", "TOOL", "WHEN", "NEXT", "FIRED", "LAST RUN", "STATE"}}
	for _, s := range schedules {
		at := s.Cron + " " + s.Timezone
		if s.Cron == "" {
			at = "once at " + when(s.At)
		}
		rows = append(rows, []string{
			s.ScheduleID, short(s.Title, 40), short(s.Tool, 32), at,
			when(s.NextTriggerAt), strconv.Itoa(int(s.TriggerCount)), dash(s.LastTaskID), scheduleState(s),
		})
	}
	r.table(rows)
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
