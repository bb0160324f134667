package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/wire"
)

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
			return r.printAs(s, nil, func() { r.printf("%s %s\n", s.ScheduleID, scheduleState(s)) })
		case !wire.IsRunID(id):
			return &usageError{fmt.Errorf("%q is not the id of a run or a schedule", id), "toolhost tasks and toolhost schedules show the ids"}
		}

		stopped, err := r.client.Stop(ctx, id, how)
		if err != nil {
			return err
		}
		return r.printAs(stopped, nil, func() {
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
