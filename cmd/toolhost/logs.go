package main

import (
	"context"
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/wire"
)

func logsCommand(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the output of a background run",
		Long: `Print what a background run has written: the raw bytes, or text without control
characters on a terminal. --follow continues until the run has ended, also if the
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

// maxLog bounds the log that is read, in bytes. Servers keep less.
const maxLog = 64 << 20

// printLog prints the output so far.
func (r *remote) printLog(ctx context.Context, id string) error {
	body, err := r.client.Output(ctx, id)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxLog))
	if err != nil {
		return err
	}

	return r.printAs(newLog(id, data), nil, func() { r.print(string(data)) })
}

// log is the output of a run as JSON.
type log struct {
	TaskID string `json:"task_id"`
	Text   string `json:"text"`
	Base64 []byte `json:"base64,omitempty"` // instead of Text, if the output is not UTF-8
}

func newLog(id string, data []byte) log {
	if utf8.Valid(data) {
		return log{TaskID: id, Text: string(data)}
	}
	return log{TaskID: id, Base64: data}
}

// followLog prints the output as it is written. As JSON, each piece is a document
// on a line of its own.
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
