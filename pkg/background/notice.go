package background

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

const (
	maxNotices       = 10  // notices that RenderNotices shows at once
	maxNoticeSummary = 300 // characters of a notice from the tool's own text
	maxResultStart   = 400 // characters of a result in a notice
	maxShortTitle    = 40  // characters of a title in a line of text
)

// NoticeText describes the end of a run on one line of at most 1,000 characters,
// without escaping: the outcome, the tool's summary, and the result or its first 400
// characters.
func NoticeText(run engine.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", run.ID, run.Status)
	said := run.Summary
	switch {
	case run.Error != nil:
		fmt.Fprintf(&b, " (%s)", run.Error.Kind)
		said = cmp.Or(run.Error.Message, said)
	case run.Status == engine.StatusSucceeded:
		said = cmp.Or(said, run.Narration)
	}

	fmt.Fprintf(&b, " %q (%s, %.1fs", output.Shorten(run.Title, maxShortTitle), output.Shorten(run.Tool, maxShortTitle), run.Elapsed(run.FinishedAt).Seconds())
	if run.ExitCode != nil {
		fmt.Fprintf(&b, ", exit %d", *run.ExitCode)
	}
	b.WriteString(")")
	if said = output.Shorten(said, maxNoticeSummary); said != "" {
		b.WriteString(": " + said)
	}

	switch {
	case run.ResultStart == "":
	case resultCut(run):
		fmt.Fprintf(&b, " result of %d bytes: %s", run.ResultSize, run.ResultStart)
	default:
		b.WriteString(" result: " + run.ResultStart)
	}
	return b.String()
}

// resultCut reports whether the notice of a run shows only the beginning of its result.
func resultCut(run engine.Run) bool { return strings.HasSuffix(run.ResultStart, "…") }

// NoticeHints say how a model can see what [RenderNotices] leaves out.
type NoticeHints struct {
	More   string // how to see further notices
	Result string // how to see a result that is cut off
}

// textEscaper keeps a tool's text from closing the element around it.
var textEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// RenderNotices renders the ends of runs as a text for a model, as data and never as an
// instruction of the host: the [NoticeText] of up to 10 of them, in an element
// <background-results> that no text of a tool can close. It adds the number of notices
// that are left out, including more, the number that only the caller knows of, and the
// hints that apply. Without any notices it returns "".
func RenderNotices(ended []engine.Run, more int, hints NoticeHints) string {
	if rest := len(ended) - maxNotices; rest > 0 {
		more = max(0, more) + rest
		ended = ended[:maxNotices]
	}
	if len(ended) == 0 && more <= 0 {
		return ""
	}

	var b strings.Builder
	b.WriteString("<background-results>\n")
	for _, run := range ended {
		b.WriteString(textEscaper.Replace(NoticeText(run)) + "\n")
	}
	if hints.Result != "" && slices.ContainsFunc(ended, resultCut) {
		b.WriteString(hints.Result + "\n")
	}
	if more > 0 {
		fmt.Fprintf(&b, "+%d more: %s\n", more, hints.More)
	}
	b.WriteString("</background-results>")
	return b.String()
}

// Pending returns the runs of a session whose notices are unacknowledged, in the order
// they ended: at most max of them, all if max is not positive. more is the number of
// the others. Pending acknowledges nothing: once the runs have been shown, call
// [Manager.Acknowledge].
func (m *Manager) Pending(ctx context.Context, session string, max int) (runs []engine.Run, more int, err error) {
	if session == "" {
		return nil, 0, fmt.Errorf("pending: %w", &FieldError{"session", "required"})
	}
	runs, total, err := m.engine.Pending(ctx, session, time.Now().Add(-m.cfg().NoticeTTL), max)
	if err != nil {
		return nil, 0, fmt.Errorf("pending: listing notices: %w", err)
	}
	return runs, total - len(runs), nil
}

// expired reports whether the notice of an ended run is too old to be delivered.
func (c Config) expired(run engine.Run) bool { return time.Since(run.FinishedAt) > c.NoticeTTL }

// Acknowledge records that the notices of the runs with these ids were shown, so that
// they are not delivered again. Unknown ids, ids of other sessions and runs without a
// notice are ignored.
func (m *Manager) Acknowledge(ctx context.Context, session string, ids []string) error {
	if session == "" {
		return fmt.Errorf("acknowledge: %w", &FieldError{"session", "required"})
	}
	if len(ids) == 0 {
		return nil
	}
	return m.engine.Acknowledge(ctx, session, distinct(ids))
}
