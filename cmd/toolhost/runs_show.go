package main

import (
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server/wire"
)

// printRun prints a run for people.
func (u *ui) printRun(run wire.Run) {
	u.printf("%s %s %q (%s): %s, %s", icon(run.Status), run.TaskID, oneLine(run.Title), oneLine(run.Tool), state(run), elapsed(run.ElapsedSeconds))
	if run.ExitCode != nil {
		u.printf(", exit %d", *run.ExitCode)
	}
	if text := doing(run); text != "" {
		u.printf(", %s", text)
	}
	u.printf("\n  %s\n", originOf(run))

	if run.Error != nil {
		u.printf("  error: %s\n", oneLine(run.Error.Message))
	}
	if d := run.Diagnosis; d != nil {
		u.printf("  reason: %s\n", oneLine(d.Reason))
		u.printLines("stack of the plugin", strings.ReplaceAll(strings.TrimPrefix(d.Trace, "\t"), "\n\t", "\n"))
		u.printLines("last words of the plugin", strings.ReplaceAll(d.LastWords, " | ", "\n"))
	}
	if c := run.Cost; c != nil {
		u.printf("  cost: fuel %s · processor %s · waited %s · memory %s\n", count(c.Fuel), elapsed(c.CPUSeconds), elapsed(c.WaitSeconds), human.Bytes(c.MemoryPeak))
	}
	if run.Summary != "" {
		u.printf("  summary: %s\n", oneLine(run.Summary))
	}
	if s := run.Stopping; s != nil {
		u.printf("  stop requested by %s at %s %s\n", oneLine(s.By), when(s.At), oneLine(s.Reason))
	}
	if run.Attempt > 1 {
		u.printf("  attempt %d\n", run.Attempt)
	}
	questions(run, func(_, text string) { u.printf("  waits for its user: %s\n", text) })
	if len(run.Questions) > 0 {
		u.printf("  to answer: %s\n", commandFor("wait", run))
	}

	if out := run.Output; out != nil && out.Text != "" {
		name := "output"
		if out.OmittedBytes > 0 {
			name = fmt.Sprintf("output, after %d bytes that are not shown", out.OmittedBytes)
		}
		u.printLines(name, out.Text)
	}

	if run.Result != nil || len(run.Content) > 0 {
		u.printf("  result: ")
		u.printResult(run.Result, run.Content)
	}
}

// printLines prints text from a plugin, with each line marked as such.
func (u *ui) printLines(name, text string) {
	if text == "" {
		return
	}
	u.printf("  %s:\n", name)
	for line := range strings.Lines(text) {
		u.printf("  | %s\n", fit([]byte(strings.TrimSuffix(line, "\n"))))
	}
}

// originOf describes the tool and the origin of a run, and when it started.
func originOf(run wire.Run) string {
	parts := []string{"tool of the program"}
	if run.Plugin != "" {
		parts[0] = oneLine(run.Plugin + " " + run.PluginVersion)
	}

	origin := string(run.Origin)
	switch {
	case run.ScheduleID != "":
		origin += " by " + run.ScheduleID
	case run.Parent != "":
		origin += " by " + run.Parent
	case run.By != "":
		origin += " by " + oneLine(run.By)
	}
	parts = append(parts, origin)
	if run.Session != wire.DefaultSession {
		parts = append(parts, "session "+oneLine(run.Session))
	}

	if !run.StartedAt.IsZero() {
		parts = append(parts, "started "+when(run.StartedAt))
	} else {
		parts = append(parts, "created "+when(run.CreatedAt))
	}
	return strings.Join(parts, " · ")
}
