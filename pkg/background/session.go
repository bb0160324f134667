package background

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// maxSnapshot is the maximum length of a [Manager.Snapshot], in characters.
const maxSnapshot = 1000

// Snapshot returns a summary of the session's active runs, for a model whose
// conversation was truncated: ids, tools, titles and progress, one run per line, newest
// first, in at most 1,000 characters. If the summary is cut, it ends with hint, which
// says how to see the rest. Without active runs it is "". Texts of tools are escaped as
// in [RenderNotices].
func (m *Manager) Snapshot(ctx context.Context, session, hint string) (string, error) {
	if session == "" {
		return "", fmt.Errorf("snapshot: %w", &FieldError{"session", "required"})
	}

	runs, err := m.reader.list(ctx, engine.Query{Session: session, Active: true})
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	if len(runs) == 0 {
		return "", nil
	}

	now := time.Now()
	text := fmt.Sprintf("Active background tasks of this session: %d\n", len(runs))
	for i, run := range runs {
		line := textEscaper.Replace(snapshotLine(run, now)) + "\n"
		more := fmt.Sprintf("+%d more: %s\n", len(runs)-i, hint)
		if len([]rune(text))+len([]rune(line))+len(more) > maxSnapshot {
			return text + more, nil
		}
		text += line
	}
	return text, nil
}

func snapshotLine(run engine.Run, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %q", run.ID, run.Status, output.Shorten(run.Tool, maxShortTitle), output.Shorten(run.Title, maxShortTitle))
	if run.Status == engine.StatusRunning {
		fmt.Fprintf(&b, " for %.0fs", run.Elapsed(now).Seconds())
	}
	if run.Undecided() {
		b.WriteString(", waits for " + run.Held)
	}
	if run.Cancel != nil {
		b.WriteString(", stopping")
	}
	if p := run.Progress; p != nil && p.Total > 0 {
		b.WriteString(", " + strconv.FormatFloat(p.Done, 'f', -1, 64) + "/" + strconv.FormatFloat(p.Total, 'f', -1, 64))
	}
	if run.Detail != "" {
		b.WriteString(": " + output.Shorten(run.Detail, maxShortTitle))
	}

	return b.String()
}

// EndSession ends a session. It stops the session's parked calls or, with [EndAll], all
// its runs, and removes its values in all scopes. Records, notices and schedules are
// kept; [Manager.Unschedule] disables a schedule. It waits until the stopped runs have
// ended, for at most the grace period plus a second. If ctx is done first, it returns
// ctx's error, and the stops continue.
func (m *Manager) EndSession(ctx context.Context, session string) error {
	if session == "" {
		return fmt.Errorf("end session: %w", &FieldError{"session", "required"})
	}
	runs, err := m.engine.List(ctx, engine.Query{Session: session, Active: true})
	if err != nil {
		return fmt.Errorf("end session: listing runs: %w", err)
	}

	request := StopRequest{By: "host", Reason: "the session ended"}
	var stopped []handle
	var errs []error
	for _, run := range runs {
		if (run.Origin != engine.OriginParked || isOperation(run)) && m.cfg().EndSession != EndAll {
			continue
		}
		family, err := m.worker.stopFamily(ctx, handle{run: run}, request)
		stopped = append(stopped, family...)
		switch {
		case err == nil:
		case !errors.Is(err, engine.ErrNotFound):
			errs = append(errs, err)
		}
	}
	if len(stopped) > 0 {
		m.log.Info("background runs stopped with their session", "session", session, "stopped", len(stopped))
	}

	errs = append(errs, m.reader.await(ctx, session, stopped, waitLimits{until: UntilAll, most: m.cfg().Grace + time.Second}))
	scopes, err := m.engine.Scopes(ctx, session, "")
	errs = append(errs, err)
	for _, s := range scopes {
		errs = append(errs, m.engine.DropValues(context.WithoutCancel(ctx), s.Scope, ""))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}
