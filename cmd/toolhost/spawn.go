package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/httpapi"
)

// spawnFlags are what spawn was asked for.
type spawnFlags struct {
	title, key, cron, at, timezone, overlap string
	timeout                                 time.Duration
	silent, wait                            bool
}

func (a *app) spawn() *cobra.Command {
	var f spawnFlags
	cmd := &cobra.Command{
		Use:   "spawn TOOL [ARGS|@FILE|-]",
		Short: "Start a tool as a background run of a server, now or at times",
		Long: `Start a tool as a background run of a server (see toolhost serve), and print its
id. The run does not depend on this command: toolhost check, wait, logs and stop
take the id. With --cron or --at the tool is started at those times, and the id
is that of the schedule.`,
		Example: `  toolhost spawn primes '{"limit":2000000}' --title "Primes below 2 million"
  toolhost wait $(toolhost spawn primes '{"limit":2000000}')
  toolhost spawn report --cron '0 9 * * mon-fri' --timezone Europe/Vienna`,
		Args: cobra.RangeArgs(1, 2),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.title, "title", "", "what to call the run (default: the tool's title)")
	flags.DurationVar(&f.timeout, "timeout", 0, "deadline of the run (default: the tool's)")
	flags.StringVar(&f.key, "key", "", "idempotency `key`: the same key, tool and arguments give the same run")
	flags.BoolVar(&f.silent, "silent", false, "the session is not told of the end")
	flags.BoolVar(&f.wait, "wait", false, "wait for the end: live output on stderr, the result on stdout")
	flags.StringVar(&f.cron, "cron", "", "start it again and again, by a cron `expression` of five fields")
	flags.StringVar(&f.at, "at", "", "start it once, at a `time` such as 2030-01-31T09:30:00Z")
	flags.StringVar(&f.timezone, "timezone", "", "time zone of --cron, such as Europe/Vienna (default UTC)")
	flags.StringVar(&f.overlap, "overlap", "", "with --cron, while the run before is active: skip, queue or cancel_previous (default skip)")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		in, err := a.arguments(cmd.Context(), args[1:])
		if err != nil {
			return err
		}
		req, err := f.request(args[0], in)
		if err != nil {
			return err
		}
		if f.cron != "" || f.at != "" {
			return a.spawnSchedule(cmd.Context(), c, httpapi.NewSchedule{
				Spawn: req, Cron: f.cron, At: f.at, Timezone: f.timezone, Overlap: background.Overlap(f.overlap),
			})
		}
		return a.spawnRun(cmd.Context(), c, req, f)
	})
}

// request is the body of the request, if the flags fit together.
func (f spawnFlags) request(tool string, args json.RawMessage) (httpapi.Spawn, error) {
	scheduled := f.cron != "" || f.at != ""
	wrong := func(text string) (httpapi.Spawn, error) {
		return httpapi.Spawn{}, &usageError{errors.New(text), "toolhost spawn --help shows the flags"}
	}
	switch {
	case f.timeout < 0:
		return wrong("a deadline cannot be negative")
	case f.cron != "" && f.at != "":
		return wrong("--cron and --at do not go together")
	case scheduled && (f.wait || f.key != ""):
		return wrong("--wait and --key do not go with --cron and --at")
	case !scheduled && (f.timezone != "" || f.overlap != ""):
		return wrong("--timezone and --overlap need --cron or --at")
	}
	req := httpapi.Spawn{Tool: tool, Args: args, Title: f.title, TimeoutSeconds: f.timeout.Seconds()}
	if f.silent {
		req.SignalOnCompletion = new(bool)
	}
	return req, nil
}

func (a *app) spawnRun(ctx context.Context, c *client, req httpapi.Spawn, f spawnFlags) error {
	var run httpapi.Run
	if err := c.do(ctx, http.MethodPost, "/v1/runs", req, &run, httpapi.KeyHeader, f.key); err != nil {
		return err
	}
	if f.wait {
		return a.attend(ctx, c, run.TaskID)
	}
	if a.json {
		a.printJSON(run)
		return nil
	}
	a.printf("%s\n", run.TaskID)
	if terminal(a.err) > 0 {
		verb := "started"
		if run.Reused {
			verb = "was there already"
		}
		a.notef("%q %s; toolhost logs -f %s follows it", oneLine(run.Title), verb, run.TaskID)
	}
	return nil
}

func (a *app) spawnSchedule(ctx context.Context, c *client, req httpapi.NewSchedule) error {
	var s httpapi.Schedule
	if err := c.do(ctx, http.MethodPost, "/v1/schedules", req, &s); err != nil {
		return err
	}
	if a.json {
		a.printJSON(s)
		return nil
	}
	a.printf("%s\n", s.ScheduleID)
	if terminal(a.err) > 0 {
		a.notef("%q starts first at %s", oneLine(s.Title), when(s.NextTriggerAt))
	}
	return nil
}

// attend follows a run to its end as call follows a call: output and progress
// on stderr, the result on stdout.
func (a *app) attend(ctx context.Context, c *client, id string) error {
	progress := newBar(a.err)
	shown := progress.output(a.err)
	run, err := c.follow(ctx, progress, id, follower{
		output: shown.take,
		run:    func(run httpapi.Run) { progress.setRun(run) },
	})
	shown.end()
	progress.clear()
	if err != nil {
		if ctx.Err() != nil {
			a.notef("toolhost: the run goes on: toolhost wait %s", id)
		}
		return err
	}
	return a.finish(run)
}
