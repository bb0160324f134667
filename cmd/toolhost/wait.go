package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/server/wire"
)

func waitCommand(a *app) *cobra.Command {
	var flags []string
	cmd := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait for background runs to end, and print their results",
		Long: `Wait until all runs have ended, and print their results to stdout in the order of
the ids, one per line. The command keeps waiting if the server is restarted.

Questions of the runs are asked on the terminal. --answer KEY=CONTENT answers the
questions with that key instead, see toolhost call. Otherwise the command waits until
somebody else answers them.

Exit codes: 0 all succeeded, 1 one failed or was canceled, 3 one hit a limit,
4 one was denied, 5 not found, 130 interrupted. If several runs did not succeed,
the first one decides.`,
		Args: cobra.RangeArgs(1, 20),
	}
	cmd.Flags().StringArrayVar(&flags, "answer", nil, "answer to a question of a run, as `KEY=CONTENT`; may be repeated")
	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		if err := checkRun(args...); err != nil {
			return err
		}
		answers, err := parseAnswers(flags)
		if err != nil {
			return err
		}
		progress := newBar(r.err)
		found, err := r.waitFor(ctx, args, progress, r.question("the run", false, answers, progress))
		if err != nil {
			return err
		}
		return r.answer(found, outcome(found), func() {
			for _, run := range found.Runs {
				r.printResult(run.Result, run.Content)
			}
		})
	})
}

// How long one request waits. On a terminal, the time is shorter, because the progress
// bar has to move.
const (
	waitQuiet = 5 * time.Minute
	waitShown = time.Second
)

// waitFor waits until all runs have ended. If ask is not nil, it answers their
// questions with it.
func (r *remote) waitFor(ctx context.Context, ids []string, progress *bar, ask question) (wire.Runs, error) {
	defer progress.clear()
	wait := waitQuiet
	if progress.width > 0 {
		wait = waitShown
	}

	retry := client.Retry{Away: progress.away}
	options := client.CheckOptions{All: true} // the first one does not wait, to show the progress immediately
	asked := map[string]bool{}
	for {
		found, err := r.client.Check(ctx, ids, options)
		switch {
		case err != nil:
			err = retry.Wait(ctx, err)
		case !slices.ContainsFunc(found.Runs, func(run wire.Run) bool { return !run.Done }):
			return found, nil
		default:
			retry.Reached()
			progress.setRuns(found.Runs)
			progress.holds(found.Runs, asked)
			options.Wait = wait
			if err = r.answerRuns(ctx, found.Runs, ask); errors.Is(err, errUnanswered) {
				progress.asks(found.Runs, asked)
				err = pause(ctx, waitShown) // the server does not wait while there are questions
			}
		}
		if err != nil {
			return wire.Runs{}, err
		}
	}
}

// asks prints each open question, but only once.
func (b *bar) asks(runs []wire.Run, asked map[string]bool) {
	for _, run := range runs {
		questions(run, func(key, text string) {
			if at := run.TaskID + " " + key; !asked[at] {
				asked[at] = true
				b.notef("toolhost: %s waits for its user: %s", run.TaskID, text)
			}
		})
	}
}

// holds says, once for each run that waits for approval, how to decide on it.
func (b *bar) holds(runs []wire.Run, said map[string]bool) {
	for _, run := range runs {
		if run.Status == wire.StatusQueued && run.Held != "" && !said[run.TaskID] {
			said[run.TaskID] = true
			b.notef("toolhost: it waits for %s: toolhost approve %s", run.Held, run.TaskID)
		}
	}
}

// setRuns shows the combined progress of several runs.
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

// pause waits for d or until ctx is done, and returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func logsCommand(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the output of a background run",
		Long: `Print what a background run has written: the raw bytes, or text without control
characters on a terminal. --follow continues until the run has ended, even if the
server is restarted.

Exit codes: 0 ok, 2 usage or no server, 5 not found, 130 interrupted.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the run has ended")

	return a.remote(cmd, func(ctx context.Context, r *remote, args []string) error {
		switch err := checkRun(args[0]); {
		case err != nil:
			return err
		case follow:
			return r.followLog(ctx, args[0])
		}
		return r.printLog(ctx, args[0])
	})
}

// maxLog is the number of bytes of a log that are read. Servers keep fewer.
const maxLog = 64 << 20

// printLog prints the output that there is so far.
func (r *remote) printLog(ctx context.Context, id string) error {
	body, err := r.client.Output(ctx, id)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxLog))
	return r.reply(newLog(id, data), err, func() { r.print(string(data)) })
}

// log is the output of a run as JSON.
type log struct {
	TaskID string `json:"task_id"`
	Text   string `json:"text"`
	Base64 []byte `json:"base64,omitempty"` // replaces Text if the output is not valid UTF-8
}

func newLog(id string, data []byte) log {
	if utf8.Valid(data) {
		return log{TaskID: id, Text: string(data)}
	}
	return log{TaskID: id, Base64: data}
}

// followLog prints the output as it is written. In JSON, each piece is a document on a
// line of its own.
func (r *remote) followLog(ctx context.Context, id string) error {
	progress := newBar(r.err)
	shown := progress.output(r.out)
	enc := json.NewEncoder(r.out)
	enc.SetEscapeHTML(false)

	attempt := 1
	_, err := r.follow(ctx, id, progress, shown, func(out wire.Output) {
		if r.json {
			_ = enc.Encode(out)
			return
		}
		if out.Attempt > attempt {
			shown.end()
			progress.clear()
			r.notef("toolhost: the run was started again, attempt %d", out.Attempt)
			attempt = out.Attempt
		}
		shown.take(out)
	})
	return err
}
