package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/httpapi"
)

// defaultRows is how many runs are listed.
const defaultRows = 50

// listFlags say which runs to list.
type listFlags struct {
	active bool
	limit  int
}

func (a *app) tasks() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the background runs of a session, newest first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&f.active, "active", false, "only those that have not ended")
	cmd.Flags().IntVar(&f.limit, "limit", defaultRows, "how many at most, up to 200")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, _ []string) error {
		return a.listRuns(cmd.Context(), c, f)
	})
}

func (a *app) listRuns(ctx context.Context, c *client, f listFlags) error {
	query := url.Values{"limit": {strconv.Itoa(f.limit)}}
	if f.active {
		query.Set("active", "true")
	}
	var found httpapi.Runs
	if err := c.do(ctx, http.MethodGet, "/v1/runs?"+query.Encode(), nil, &found); err != nil {
		return err
	}
	if a.json {
		a.printJSON(found)
		return nil
	}
	if len(found.Runs) == 0 {
		a.printf("No background tasks.\n")
		return nil
	}
	total := strconv.Itoa(len(found.Runs)) + " total"
	if found.Next != "" {
		total = "the newest " + strconv.Itoa(len(found.Runs))
	}
	a.printf("Background tasks (%s):\n\n", total)
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, run := range found.Runs {
		fmt.Fprintf(w, " %s %s\t%s\t%s\t%s\t%s", icon(run.Status), run.TaskID, short(run.Title, 40), short(run.Tool, 32),
			state(run), elapsed(run.ElapsedSeconds))
		if text := doing(run); text != "" && !run.Done {
			fmt.Fprintf(w, "\t%s", short(text, 60))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func (a *app) schedules() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the schedules of a session, newest first",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "those too that will not fire again")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, _ []string) error {
		var found httpapi.Schedules
		path := "/v1/schedules?enabled=" + strconv.FormatBool(!all)
		if err := c.do(cmd.Context(), http.MethodGet, path, nil, &found); err != nil {
			return err
		}
		switch {
		case a.json:
			a.printJSON(found)
			return nil
		case len(found.Schedules) == 0:
			a.printf("No schedules.\n")
			return nil
		}
		w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "SCHEDULE\tTITLE\tTOOL\tWHEN\tNEXT\tFIRED\tLAST RUN\tSTATE")
		for _, s := range found.Schedules {
			at := s.Cron + " " + s.Timezone
			if s.Cron == "" {
				at = "once at " + when(s.At)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", s.ScheduleID, short(s.Title, 40), short(s.Tool, 32), at,
				when(s.NextTriggerAt), s.TriggerCount, dash(s.LastTaskID), scheduleState(s))
		}
		return w.Flush()
	})
}

func scheduleState(s httpapi.Schedule) string {
	switch {
	case s.Enabled:
		return "enabled"
	case s.DisabledReason != "":
		return "disabled: " + short(s.DisabledReason, 60)
	}
	return "disabled"
}
