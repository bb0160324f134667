package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

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

	return r.printAs(found, nil, func() {
		if len(found.Runs) == 0 {
			r.printf("No background tasks.\n")
			return
		}
		total := fmt.Sprintf("%d total", len(found.Runs))
		if found.Next != "" {
			total = fmt.Sprintf("the newest %d", len(found.Runs))
		}
		r.printf("Background tasks (%s):\n\n", total)
		w := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', 0)
		for _, run := range found.Runs {
			fmt.Fprintf(w, " %s %s\t%s\t%s\t%s\t%s", icon(run.Status), run.TaskID, short(run.Title, 40), short(run.Tool, 32),
				state(run), elapsed(run.ElapsedSeconds))
			if text := doing(run); text != "" {
				fmt.Fprintf(w, "\t%s", short(text, 60))
			}
			fmt.Fprintln(w)
		}
		r.flush(w)
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
		return r.printAs(wire.Schedules{Schedules: found}, nil, func() { r.printSchedules(found) })
	})
}

func (r *remote) printSchedules(schedules []wire.Schedule) {
	if len(schedules) == 0 {
		r.printf("No schedules.\n")
		return
	}

	w := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SCHEDULE\tTITLE\tTOOL\tWHEN\tNEXT\tFIRED\tLAST RUN\tSTATE")
	for _, s := range schedules {
		at := s.Cron + " " + s.Timezone
		if s.Cron == "" {
			at = "once at " + when(s.At)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.ScheduleID, short(s.Title, 40), short(s.Tool, 32), at,
			when(s.NextTriggerAt), s.TriggerCount, dash(s.LastTaskID), scheduleState(s))
	}
	r.flush(w)
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
