package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
		a.printResult(run.Result, run.Content)
	}
}
