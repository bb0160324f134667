package background

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxSnapshot bounds [Manager.Snapshot], in characters.
const maxSnapshot = 1000

// Snapshot returns what a model has to know of the session's active runs when
// the beginning of its conversation is cut away: their ids, tools, titles and
// how far they are, a line each, the newest first, in at most 1,000
// characters. It is "" if there are none. What tools said in it is escaped as
// in [RenderNotices].
func (m *Manager) Snapshot(ctx context.Context, session string) (string, error) {
	if session == "" {
		return "", fmt.Errorf("snapshot: %w", &FieldError{"session", "required"})
	}
	runs, err := m.list(ctx, Query{Session: session, Active: true})
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	if len(runs) == 0 {
		return "", nil
	}
	now := time.Now()
	text := fmt.Sprintf("Active background tasks of this session: %d\n", len(runs))
	for i, run := range runs {
		line := noticeEscaper.Replace(snapshotLine(run, now)) + "\n"
		more := fmt.Sprintf("+%d more: check_background list=true\n", len(runs)-i)
		if len([]rune(text))+len([]rune(line))+len(more) > maxSnapshot {
			return text + more, nil
		}
		text += line
	}
	return text, nil
}

func snapshotLine(run Run, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %q", run.ID, run.Status, shorten(run.Tool, maxListTitle), shorten(run.Title, maxListTitle))
	if run.Status == StatusRunning {
		fmt.Fprintf(&b, " for %.0fs", run.Elapsed(now).Seconds())
	}
	if run.Cancel != nil {
		b.WriteString(", stopping")
	}
	if p := run.Progress; p != nil && p.Total > 0 {
		fmt.Fprintf(&b, ", %g/%g", p.Done, p.Total)
	}
	if run.Detail != "" {
		b.WriteString(": " + shorten(run.Detail, maxListTitle))
	}
	return b.String()
}

// EndSession says that a session is over: its parked calls are stopped, and
// with [EndAll] all its runs; others go on. Records, notices and schedules
// stay: [Manager.Unschedule] ends those. It waits until those it stopped have ended, but no
// longer than the grace and a second, or until ctx is done; then the error is
// its, and the stops go on.
func (m *Manager) EndSession(ctx context.Context, session string) error {
	if session == "" {
		return fmt.Errorf("end session: %w", &FieldError{"session", "required"})
	}
	runs, err := m.engine.List(ctx, Query{Session: session, Active: true})
	if err != nil {
		return fmt.Errorf("end session: listing runs: %w", err)
	}
	request := Cancellation{At: time.Now(), By: "host", Reason: "the session ended"}
	var stopped []handle
	var errs []error
	for _, run := range runs {
		if run.Origin != OriginParked && m.cfg.EndSession != EndAll {
			continue
		}
		t, err := m.askToStop(ctx, run.ID, request, m.cfg.Grace)
		if err != nil && !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
		stopped = append(stopped, handle{id: run.ID, task: t})
	}
	if len(stopped) > 0 {
		m.log.Info("background runs stopped with their session", "session", session, "stopped", len(stopped))
	}
	patience := time.NewTimer(m.cfg.Grace + time.Second)
	defer patience.Stop()
	errs = append(errs, await(ctx, patience.C, nil, stopped, UntilAll, (*task).end))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}
