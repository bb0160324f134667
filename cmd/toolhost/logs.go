package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/server/httpapi"
)

func (a *app) logs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print the output of a background run",
		Long: `Print what a background run has written: the raw bytes, or what is fit to be
seen if this is a terminal. --follow goes on until the run has ended, also over a
restart of the server.

Exit codes: 0 ok, 2 usage, or no server, 5 not found, 130 interrupted.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		if err := checkRun(args[0]); err != nil {
			return err
		}
		if follow {
			return a.followLog(cmd.Context(), c, args[0])
		}
		return a.printLog(cmd.Context(), c, args[0])
	})
}

// printLog prints what there is of a log.
func (a *app) printLog(ctx context.Context, c *client, id string) error {
	resp, err := c.send(ctx, http.MethodGet, "/v1/runs/"+id+"/output", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := readAll(resp.Body)
	if err != nil {
		return c.broken(ctx, err)
	}
	switch {
	case a.json:
		a.printJSON(newLog(id, data))
	default:
		a.printf("%s", data)
	}
	return nil
}

// followLog prints a log as it is written.
func (a *app) followLog(ctx context.Context, c *client, id string) error {
	progress := newBar(a.err)
	shown := progress.output(a.out)
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	attempt := 1
	_, err := c.follow(ctx, progress, id, follower{
		output: func(out httpapi.Output) {
			if a.json {
				_ = enc.Encode(out) // a document a line
				return
			}
			if out.Attempt > attempt {
				shown.end()
				progress.clear()
				a.notef("toolhost: the run was started again, attempt %d", out.Attempt)
				attempt = out.Attempt
			}
			shown.take(out)
		},
		run: func(run httpapi.Run) { progress.setRun(run) },
	})
	shown.end()
	progress.clear()
	return err
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
