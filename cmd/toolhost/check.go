package main

import (
	"context"
	"errors"
	"fmt"
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
		return r.printAs(found, missing(found), func() {
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
