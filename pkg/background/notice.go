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
	// MaxNotices is how many notices [RenderNotices] shows at once.
	MaxNotices = 10

	maxNotice        = 500 // characters of a notice's text
	maxNoticeSummary = 300 // characters of it that are the tool's
)

// A Notice says that a run has ended. A run that is to be signaled has exactly
// one, which may be handed out more than once, with the same ID, until it is
// acknowledged.
type Notice struct {
	ID             string           `json:"task_id"` // of the run
	Session        string           `json:"session"`
	Tool           string           `json:"tool"`
	Title          string           `json:"title"`
	Status         engine.Status    `json:"status"`
	ErrorKind      engine.ErrorKind `json:"error_kind,omitempty"`
	ElapsedSeconds float64          `json:"elapsed_seconds"`
	ExitCode       *int             `json:"exit_code,omitempty"`
	Text           string           `json:"text"` // all of it on one line, at most 500 characters; not escaped
	ResultPath     string           `json:"result_path"`
	At             time.Time        `json:"at"` // when the run ended
}

// newNotice returns the notice of an ended run.
func newNotice(run engine.Run) Notice {
	n := Notice{
		ID: run.ID, Session: run.Session, Tool: run.Tool, Title: run.Title, Status: run.Status,
		ElapsedSeconds: tenths(run.Elapsed(run.FinishedAt)), ExitCode: run.ExitCode,
		ResultPath: run.Path(engine.ResultJSON), At: run.FinishedAt,
	}
	said := run.Summary
	if run.Error != nil {
		n.ErrorKind = run.Error.Kind
		said = cmp.Or(run.Error.Message, said)
	}
	n.Text = n.text(said)
	return n
}

// text returns the notice in one line. The words of the tool come before the
// path, and are cut so that the path is whole.
func (n Notice) text(said string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", n.ID, n.Status)
	if n.ErrorKind != "" {
		fmt.Fprintf(&b, " (%s)", n.ErrorKind)
	}
	fmt.Fprintf(&b, " %q (%s, %.1fs", output.Shorten(n.Title, maxListTitle), output.Shorten(n.Tool, maxListTitle), n.ElapsedSeconds)
	if n.ExitCode != nil {
		fmt.Fprintf(&b, ", exit %d", *n.ExitCode)
	}
	b.WriteString(")")
	if said = output.Shorten(said, maxNoticeSummary); said != "" {
		b.WriteString(": " + said)
	}
	end := " result: " + n.ResultPath
	return output.Clip(b.String(), maxNotice-len(end)) + end
}

// Pending returns the notices of a session that are not acknowledged: at most
// max of them, all if max is not positive; those of runs that ended first come
// first. It changes nothing: [Manager.Acknowledge] those that were shown.
func (m *Manager) Pending(ctx context.Context, session string, max int) ([]Notice, error) {
	if session == "" {
		return nil, fmt.Errorf("pending: %w", &FieldError{"session", "required"})
	}
	runs, err := m.engine.List(ctx, engine.Query{Session: session, Notice: true})
	if err != nil {
		return nil, fmt.Errorf("pending: listing notices: %w", err)
	}

	slices.Reverse(runs)
	slices.SortStableFunc(runs, func(a, b engine.Run) int { return a.FinishedAt.Compare(b.FinishedAt) })
	runs = slices.DeleteFunc(runs, m.cfg.expired)
	if max > 0 && len(runs) > max {
		runs = runs[:max]
	}
	notices := make([]Notice, len(runs))
	for i, run := range runs {
		notices[i] = newNotice(run)
	}
	return notices, nil
}

// expired reports whether the notice of an ended run is not delivered any more.
func (c Config) expired(run engine.Run) bool { return time.Since(run.FinishedAt) > c.NoticeTTL }

// Acknowledge records that the notices of these runs were shown: they are not
// handed out again. Unknown ids, those of other sessions and those without a
// notice are ignored.
func (m *Manager) Acknowledge(ctx context.Context, session string, ids []string) error {
	if session == "" {
		return fmt.Errorf("acknowledge: %w", &FieldError{"session", "required"})
	}
	if len(ids) == 0 {
		return nil
	}
	if err := m.engine.Acknowledge(ctx, session, distinct(ids)); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// noticeEscaper keeps a tool's text from ending the element it stands in.
var noticeEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// RenderNotices returns notices as a text to put before a model, as data and
// never as an instruction of the host: one line each, in an element
// <background-results>, which no text of a tool can end. It shows [MaxNotices] of
// them. Of the others, and of more that the caller has, it says how many there
// are, and hint, how to see them. It returns "" if there are none.
func RenderNotices(notices []Notice, more int, hint string) string {
	if rest := len(notices) - MaxNotices; rest > 0 {
		more = max(0, more) + rest
		notices = notices[:MaxNotices]
	}
	if len(notices) == 0 && more <= 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<background-results>\n")
	for _, n := range notices {
		b.WriteString(noticeEscaper.Replace(output.Clip(strings.Join(strings.Fields(n.Text), " "), maxNotice)) + "\n")
	}
	if more > 0 {
		fmt.Fprintf(&b, "+%d more: %s\n", more, hint)
	}
	b.WriteString("</background-results>")
	return b.String()
}
