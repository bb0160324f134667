package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		in, err := a.arguments(args[1:])
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
	run, err := c.follow(ctx, progress, id, follower{
		output: func(out httpapi.Output) { _, _ = progress.Write(outputBytes(out, terminal(a.err) > 0)) },
		run:    func(run httpapi.Run) { progress.setRun(run) },
	})
	progress.clear()
	if err != nil {
		if ctx.Err() != nil {
			a.notef("toolhost: the run goes on: toolhost wait %s", id)
		}
		return err
	}
	return a.finish(run)
}

// setRun draws how far a run is.
func (b *bar) setRun(run httpapi.Run) {
	if p := run.Progress; p != nil {
		b.set(p.Done, p.Total, p.Message)
	}
}

// outputBytes are those of a piece of output, with a line for what was dropped
// before it. For a terminal they are cleaned.
func outputBytes(out httpapi.Output, clean bool) []byte {
	data := out.Base64
	if data == nil {
		data = []byte(out.Text)
	}
	if clean {
		data = []byte(background.Clean(data))
	}
	if out.Omitted > 0 {
		data = append(fmt.Appendf(nil, "\n[system] %d bytes omitted\n", out.Omitted), data...)
	}
	return data
}

func (a *app) stop() *cobra.Command {
	var in httpapi.Stop
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a background run, or disable a schedule",
		Long: `Stop a background run of a server: it is asked to end, and after the server's
grace, or at once with --force, it is ended. The answer tells its true state: a
result that came first is kept. With the id of a schedule, the schedule is
disabled; a run it has started goes on.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&in.Force, "force", false, "end it at once, without a chance to give way")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, kept with the run")
	return a.remote(cmd, func(c *client, cmd *cobra.Command, args []string) error {
		if isSchedule(args[0]) {
			return a.stopSchedule(cmd.Context(), c, args[0])
		}
		if err := checkRun(args[0]); err != nil {
			return err
		}
		var stopped background.Stopped
		if err := c.do(cmd.Context(), http.MethodPost, "/v1/runs/"+args[0]+"/stop", in, &stopped); err != nil {
			return err
		}
		switch {
		case a.json:
			a.printJSON(stopped)
		case stopped.AlreadyFinished:
			a.printf("%s has ended by itself: %s\n", stopped.TaskID, stopped.Status)
		case stopped.Stopping:
			a.printf("%s is %s and asked to end\n", stopped.TaskID, stopped.Status)
		default:
			a.printf("%s %s\n", stopped.TaskID, stopped.Status)
		}
		return nil
	})
}

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
				progress.clear()
				a.notef("toolhost: the run was started again, attempt %d", out.Attempt)
				attempt = out.Attempt
			}
			_, _ = progress.above(a.out, outputBytes(out, terminal(a.out) > 0))
		},
		run: func(run httpapi.Run) { progress.setRun(run) },
	})
	progress.clear()
	return err
}
