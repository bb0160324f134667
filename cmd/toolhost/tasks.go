package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func tasksCommand(a *app) *cobra.Command {
	var q client.RunQuery
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the background runs of a session, or of all, newest first",
		Args:  cobra.NoArgs,
	}
	var statuses []string
	var since string
	flags := cmd.Flags()
	flags.BoolVar(&q.Active, "active", false, "list only runs that are not done")
	flags.BoolVar(&q.AllSessions, "all", false, "list the runs of all sessions; for the operator")
	flags.IntVar(&q.Limit, "limit", 50, "maximum `number` of runs to list, up to 200")
	flags.StringVar(&q.Tool, "tool", "", "list only runs of this tool")
	flags.StringSliceVar(&statuses, "status", nil, "list only runs with this `status`: queued, running, waiting, succeeded, failed or canceled; may be repeated")
	flags.StringVar(&since, "since", "", "list only runs created since a `time` such as 2030-01-31T09:30:00Z, or in the last 1h")
	flags.StringVar(&q.Text, "text", "", "list only runs with this text in their tool, title or error")

	return a.remote(cmd, func(ctx context.Context, r *remote, _ []string) (err error) {
		for _, s := range statuses {
			q.Statuses = append(q.Statuses, wire.Status(s))
		}
		if q.CreatedSince, err = sinceTime(since, time.Now()); err != nil {
			return err
		}
		return r.listRuns(ctx, q)
	})
}

// sinceTime parses a time, or a duration that is subtracted from now.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, &usageError{fmt.Errorf("--since: expected a duration such as 1h or a time such as 2030-01-31T09:30:00Z, found %q", text), ""}
	}
	return at, nil
}

func (r *remote) listRuns(ctx context.Context, q client.RunQuery) error {
	found, err := r.client.Runs(ctx, q)
	return r.reply(found, err, func() {
		if len(found.Runs) == 0 {
			if q.Tool != "" || q.Text != "" || len(q.Statuses) > 0 || !q.CreatedSince.IsZero() {
				r.printf("No background tasks match.\n")
				return
			}
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
			row := []string{
				" " + icon(run.Status) + " " + run.TaskID, short(run.Title, 40), short(run.Tool, 32), state(run), elapsed(run.ElapsedSeconds),
				string(run.Origin), dateTime(run.CreatedAt),
			}
			if q.AllSessions {
				row = append(row, short(run.Session, 32))
			}
			if text := doing(run); text != "" {
				row = append(row, short(text, 60))
			}
			rows = append(rows, row)
		}
		r.table(rows)
	})
}
