package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/httpapi"
)

func (a *app) check() *cobra.Command {
	var wait time.Duration
	var tail int
	cmd := &cobra.Command{
		Use:   "check [ID…]",
		Short: "Show background runs: status, progress, latest output, result",
		Long: `Show background runs of a server; without an id, list them. --wait waits for the
first of them to end. That somebody looks changes nothing: the session is told
of the end all the same.`,
		Args: cobra.MaximumNArgs(20),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the first to end, at most 9m")
	cmd.Flags().IntVar(&tail, "tail", 2048, "`characters` of the latest output, at most 16384")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		if err := checkFlags(cmd, args, wait); err != nil {
			return err
		}
		if len(args) == 0 {
			return a.listRuns(cmd.Context(), c, listFlags{limit: defaultRows})
		}
		query := url.Values{"tail": {strconv.Itoa(tail)}}
		if wait > 0 {
			query.Set("wait", wait.String())
		}
		found, err := c.runs(cmd.Context(), args, query)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(found) // with what is missing
			if err := missing(found); err != nil {
				return &reportedError{err}
			}
			return nil
		}
		for _, run := range found.Runs {
			a.printRun(run)
		}
		return missing(found)
	})
}

// checkFlags refuses flags that would have no effect.
func checkFlags(cmd *cobra.Command, ids []string, wait time.Duration) error {
	for _, name := range []string{"wait", "tail"} {
		if len(ids) == 0 && cmd.Flags().Changed(name) {
			return &usageError{fmt.Errorf("--%s needs the id of a run", name), "toolhost tasks shows the ids"}
		}
	}
	if wait < 0 {
		return &usageError{errors.New("--wait cannot be negative"), "leave it out to look at once"}
	}
	return nil
}

// runs asks for some runs.
func (c *client) runs(ctx context.Context, ids []string, query url.Values) (httpapi.Runs, error) {
	for _, id := range ids {
		if err := checkRun(id); err != nil {
			return httpapi.Runs{}, err
		}
	}
	query["id"] = ids
	var found httpapi.Runs
	err := c.do(ctx, http.MethodGet, "/v1/runs?"+query.Encode(), nil, &found)
	return found, err
}

// missing is the error of runs that were asked for and are not there.
func missing(found httpapi.Runs) error {
	if len(found.Missing) == 0 {
		return nil
	}
	return &httpapi.Problem{Code: httpapi.CodeNotFound, Detail: "no such background task in this session: " + strings.Join(found.Missing, ", ")}
}

// printRun prints all there is to say of a run, for people.
func (a *app) printRun(run httpapi.Run) {
	a.printf("%s %s %q (%s): %s, %s", icon(run.Status), run.TaskID, oneLine(run.Title), oneLine(run.Tool), state(run), elapsed(run.ElapsedSeconds))
	if run.ExitCode != nil {
		a.printf(", exit %d", *run.ExitCode)
	}
	if text := doing(run); text != "" && !run.Done {
		a.printf(", %s", text)
	}
	a.printf("\n")
	if run.Error != nil {
		a.printf("  error: %s\n", oneLine(run.Error.Message))
	}
	if run.Stopping != nil {
		a.printf("  stop asked for by %s at %s %s\n", oneLine(run.Stopping.By), when(run.Stopping.At), oneLine(run.Stopping.Reason))
	}
	if run.Attempt > 1 {
		a.printf("  attempt %d\n", run.Attempt)
	}
	for _, key := range slices.Sorted(maps.Keys(run.Questions)) {
		a.printf("  waits for its user: %s\n", oneLine(run.Questions[key].Message))
	}
	if out := run.Output; out != nil && out.Text != "" {
		if out.OmittedBytes > 0 {
			a.printf("  output, without the %d bytes before:\n", out.OmittedBytes)
		} else {
			a.printf("  output:\n")
		}
		for line := range strings.Lines(out.Text) {
			a.printf("  | %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if run.Result != nil || len(run.Content) > 0 {
		a.printf("  result: ")
		a.printRunResult(run)
	}
}

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
			a.printRunResult(run)
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
				fmt.Fprintf(b, "toolhost: %s waits for its user: %s\n", run.TaskID, oneLine(run.Questions[key].Message))
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

// log is the output of a run as JSON.
type log struct {
	TaskID string `json:"task_id"`
	Text   string `json:"text"`
	Base64 []byte `json:"base64,omitempty"` // in place of text, if it is no UTF-8
}

func newLog(id string, data []byte) log {
	if utf8.Valid(data) {
		return log{TaskID: id, Text: string(data)}
	}
	return log{TaskID: id, Base64: data}
}

// readAll reads a log, which servers keep a bounded part of.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxEvent)) }
