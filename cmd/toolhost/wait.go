package main

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/httpapi"
)

func (a *app) wait() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait for background runs to end, and print their results",
		Long: `Wait until all of the runs have ended. The results go to stdout in the order of
the ids, a line each. A server that is restarted meanwhile is waited for, and so
is a user whom one of the runs asks something.

Exit codes: 0 all succeeded, 1 one failed or was canceled, 3 one hit a limit, 4
one was denied, 5 not found, 130 interrupted; of several the first run's.`,
		Args: cobra.RangeArgs(1, 20),
	}
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		found, err := a.waitFor(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		if err = outcome(found.Runs...); err == nil {
			err = missing(found)
		}
		if a.json {
			a.printJSON(found)
			if err != nil {
				return &reportedError{err}
			}
			return nil
		}
		for _, run := range found.Runs {
			a.printResult(run.Result, run.Content)
		}
		return err
	})
}

// How long one request of a wait waits: where a person looks, what is shown has
// to move.
const (
	waitQuiet = 5 * time.Minute
	waitShown = time.Second
)

// waitFor waits until all of the runs have ended.
func (a *app) waitFor(ctx context.Context, c *client, ids []string) (httpapi.Runs, error) {
	progress := newBar(a.err)
	defer progress.clear()
	wait := waitQuiet
	if progress.width > 0 {
		wait = waitShown
	}
	retry := again{bar: progress}
	query := url.Values{"until": {"all"}}
	told := map[string]bool{}
	for {
		found, err := c.runs(ctx, ids, query)
		switch {
		case err != nil:
			err = retry.try(ctx, err)
		case allDone(found.Runs):
			return found, nil
		default:
			retry.there()
			progress.setRuns(found.Runs)
			query.Set("wait", wait.String()) // not at first: what there is to see is shown at once
			if progress.asks(found.Runs, told) {
				err = pause(ctx, waitShown) // the server waits for none of them now
			}
		}
		if err != nil {
			return httpapi.Runs{}, err
		}
	}
}

// asks tells what runs ask their user, each question once, and reports whether
// any does.
func (b *bar) asks(runs []httpapi.Run, told map[string]bool) (any bool) {
	for _, run := range runs {
		for _, key := range slices.Sorted(maps.Keys(run.Questions)) {
			any = true
			if at := run.TaskID + " " + key; !told[at] {
				told[at] = true
				b.notef("toolhost: %s waits for its user: %s", run.TaskID, oneLine(run.Questions[key].Message))
			}
		}
	}
	return any
}

func allDone(runs []httpapi.Run) bool {
	for _, run := range runs {
		if !run.Done {
			return false
		}
	}
	return true
}

// setRun draws how far a run is.
func (b *bar) setRun(run httpapi.Run) {
	if p := run.Progress; p != nil {
		b.set(p.Done, p.Total, p.Message)
	}
}

// setRuns draws how far several runs are together.
func (b *bar) setRuns(runs []httpapi.Run) {
	if len(runs) == 1 {
		b.setRun(runs[0])
		return
	}
	var part, done float64
	for _, run := range runs {
		switch p := run.Progress; {
		case run.Done:
			part++
			done++
		case p != nil && p.Total > 0:
			part += min(p.Done/p.Total, 1)
		}
	}
	b.set(part, float64(len(runs)), strconv.Itoa(int(done))+" of "+strconv.Itoa(len(runs))+" have ended")
}
