package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func waitCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait for background runs to end, and print their results",
		Long: `Wait until all runs have ended, and print their results to stdout in the order of
the ids, one a line. The command keeps waiting if the server is restarted, or if a
run has a question for its user.

Exit codes: 0 all succeeded, 1 one failed or was canceled, 3 one hit a limit,
4 one was denied, 5 not found, 130 interrupted. If several runs did not succeed,
the first one decides.`,
		Args: cobra.RangeArgs(1, 20),
	}
	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		if err := checkRun(args...); err != nil {
			return err
		}
		found, err := r.waitFor(ctx, args)
		if err != nil {
			return err
		}
		return r.printAs(found, outcome(found), func() {
			for _, run := range found.Runs {
				r.printResult(run.Result, run.Content)
			}
		})
	})
}

// How long one request waits: on a terminal, the progress bar has to move.
const (
	waitQuiet = 5 * time.Minute
	waitShown = time.Second
)

// waitFor waits until all runs have ended.
func (r *remote) waitFor(ctx context.Context, ids []string) (wire.Runs, error) {
	progress := newBar(r.err)
	defer progress.clear()
	wait := waitQuiet
	if progress.width > 0 {
		wait = waitShown
	}

	retry := client.Retry{Away: progress.away}
	options := client.CheckOptions{All: true} // at first without a wait, to show the progress at once
	asked := map[string]bool{}
	for {
		found, err := r.client.Check(ctx, ids, options)
		switch {
		case err != nil:
			err = retry.Wait(ctx, err)
		case allDone(found.Runs):
			return found, nil
		default:
			retry.Reached()
			progress.setRuns(found.Runs)
			options.Wait = wait
			if progress.asks(found.Runs, asked) {
				err = pause(ctx, waitShown) // the server does not wait while there are questions
			}
		}
		if err != nil {
			return wire.Runs{}, err
		}
	}
}

// asks prints each open question once, and reports whether there is one.
func (b *bar) asks(runs []wire.Run, asked map[string]bool) (any bool) {
	for _, run := range runs {
		questions(run, func(key, text string) {
			any = true
			if at := run.TaskID + " " + key; !asked[at] {
				asked[at] = true
				b.notef("toolhost: %s waits for its user: %s", run.TaskID, text)
			}
		})
	}
	return any
}

func allDone(runs []wire.Run) bool {
	for _, run := range runs {
		if !run.Done {
			return false
		}
	}
	return true
}

// setRuns draws the progress of several runs together.
func (b *bar) setRuns(runs []wire.Run) {
	if len(runs) == 1 {
		b.setRun(runs[0])
		return
	}

	var part float64
	done := 0
	for _, run := range runs {
		switch p := run.Progress; {
		case run.Done:
			part++
			done++
		case p != nil && p.Total > 0:
			part += min(p.Done/p.Total, 1)
		}
	}
	b.set(part, float64(len(runs)), fmt.Sprintf("%d of %d have ended", done, len(runs)))
}

// pause waits so long, or until ctx is done, and returns its error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
