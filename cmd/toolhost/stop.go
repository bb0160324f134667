package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/httpapi"
)

func (a *app) stop() *cobra.Command {
	var in httpapi.Stop
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a background run, or disable a schedule",
		Long: `Stop a background run of a server: it is asked to end, and after the server's
grace, or at once with --force, it is ended. The answer tells its true state: a
result that came first is kept. With the id of a schedule, the schedule is
disabled; a run it has started goes on.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&in.Force, "force", false, "end it at once, without a chance to give way")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, kept with the run")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		if background.IsScheduleID(args[0]) {
			return a.stopSchedule(cmd.Context(), c, args[0])
		}
		if !background.IsRunID(args[0]) {
			return &usageError{fmt.Errorf("%q is no id of a run, nor of a schedule", args[0]), "toolhost tasks and toolhost schedules show the ids"}
		}
		var stopped background.Stopped
		if err := c.do(cmd.Context(), http.MethodPost, "/v1/runs/"+args[0]+"/stop", in, &stopped); err != nil {
			return err
		}
		switch {
		case a.json:
			a.printJSON(stopped)
		case stopped.AlreadyFinished:
			a.printf("%s has ended by itself: %s\n", stopped.TaskID, stopped.Status)
		case stopped.Stopping:
			a.printf("%s is %s and asked to end\n", stopped.TaskID, stopped.Status)
		default:
			a.printf("%s %s\n", stopped.TaskID, stopped.Status)
		}
		return nil
	})
}

// stopSchedule disables a schedule.
func (a *app) stopSchedule(ctx context.Context, c *client, id string) error {
	var s httpapi.Schedule
	if err := c.do(ctx, http.MethodDelete, "/v1/schedules/"+url.PathEscape(id), nil, &s); err != nil {
		return err
	}
	if a.json {
		a.printJSON(s)
		return nil
	}
	a.printf("%s %s\n", s.ScheduleID, scheduleState(s))
	return nil
}
