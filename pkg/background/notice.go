package background

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// MaxNotices is how many notices [RenderNotices] shows at once.
	MaxNotices = 10

	maxNotice        = 500 // characters of a notice's text
	maxNoticeSummary = 300 // characters of it that are the tool's
)

// A Notice tells that a run has ended. There is one for each run that is to be
// signaled, ever; the same one may be handed out more than once, with the same
// ID, until it is acknowledged.
type Notice struct {
	ID             string    `json:"task_id"` // of the run
	Session        string    `json:"session"`
	Tool           string    `json:"tool"`
	Title          string    `json:"title"`
	Status         Status    `json:"status"`
	ErrorKind      ErrorKind `json:"error_kind,omitempty"`
	ElapsedSeconds float64   `json:"elapsed_seconds"`
	ExitCode       *int      `json:"exit_code,omitempty"`
	Text           string    `json:"text"` // all of it on one line, at most 500 characters; not escaped
	ResultPath     string    `json:"result_path"`
	At             time.Time `json:"at"` // when the run ended
}

// newNotice returns the notice of an ended run.
func newNotice(run Run) Notice {
	n := Notice{
		ID: run.ID, Session: run.Session, Tool: run.Tool, Title: run.Title, Status: run.Status,
		ElapsedSeconds: tenths(run.Elapsed(run.FinishedAt)), ExitCode: run.ExitCode,
		ResultPath: run.ResultPath(), At: run.FinishedAt,
	}
	said := run.Summary
	if run.Error != nil {
		n.ErrorKind = run.Error.Kind
		said = cmp.Or(run.Error.Message, said)
	}
	n.Text = n.text(said)
	return n
}

// text says it in one line: what the tool said comes before the path, and is
// cut so that the path is whole.
func (n Notice) text(said string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", n.ID, n.Status)
	if n.ErrorKind != "" {
		fmt.Fprintf(&b, " (%s)", n.ErrorKind)
	}
	fmt.Fprintf(&b, " %q (%s, %.1fs", shorten(n.Title, maxListTitle), shorten(n.Tool, maxListTitle), n.ElapsedSeconds)
	if n.ExitCode != nil {
		fmt.Fprintf(&b, ", exit %d", *n.ExitCode)
	}
	b.WriteString(")")
	if said = shorten(said, maxNoticeSummary); said != "" {
		b.WriteString(": " + said)
	}
	end := " result: " + n.ResultPath
	return clip(b.String(), maxNotice-len(end)) + end
}

// Pending returns the notices of a session that nobody has taken: at most max
// of them, all if max is not positive; those of runs that ended first come
// first. It changes nothing: [Manager.Acknowledge] those that were shown.
func (m *Manager) Pending(ctx context.Context, session string, max int) ([]Notice, error) {
	if session == "" {
		return nil, fmt.Errorf("pending: %w", &FieldError{"session", "required"})
	}
	notices, err := m.pending(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("pending: %w", err)
	}
	if max > 0 && len(notices) > max {
		notices = notices[:max]
	}
	return notices, nil
}

// pending returns the notices of a session, or of all if session is "", that
// are neither taken nor expired, in the order of the ends.
func (m *Manager) pending(ctx context.Context, session string) ([]Notice, error) {
	runs, err := m.engine.List(ctx, Query{Session: session, Notice: true})
	if err != nil {
		return nil, fmt.Errorf("listing notices: %w", err)
	}
	oldest := time.Now().Add(-m.cfg.NoticeTTL)
	slices.Reverse(runs)
	slices.SortStableFunc(runs, func(a, b Run) int { return a.FinishedAt.Compare(b.FinishedAt) })
	notices := make([]Notice, 0, len(runs))
	for _, run := range runs {
		if !run.FinishedAt.Before(oldest) {
			notices = append(notices, newNotice(run))
		}
	}
	return notices, nil
}

// Acknowledge says that the notices of these runs were shown: they are not
// handed out again. Unknown ids, those of other sessions and those without a
// notice are left as they are.
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

// saw records that an agent was shown the end of runs, so that it is not told
// again. That it cannot be stored is no reason not to show it.
func (m *Manager) saw(ctx context.Context, session string, ended []handle) {
	var ids []string
	for _, h := range ended {
		if h.run.Notice != NoticePending {
			continue
		}
		ids = append(ids, h.id)
		if h.task != nil {
			h.task.mu.Lock()
			h.task.seen = true
			h.task.mu.Unlock()
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := m.engine.Acknowledge(context.WithoutCancel(ctx), session, ids); err != nil {
		m.log.Warn("notice of an end that was seen not taken back", "task_ids", ids, "error", err)
	}
}

// noticeEscaper keeps a tool's text from ending the element it stands in.
var noticeEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// RenderNotices returns notices as a text to put before a model, as data and
// never as an instruction of the host: one line each, in an element
// <background-results>, which nothing a tool said can end. It shows
// [MaxNotices] of them; of the others, and of more that the caller has, it
// says how many there are. It returns "" if there are none.
func RenderNotices(notices []Notice, more int) string {
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
		b.WriteString(noticeEscaper.Replace(clip(strings.Join(strings.Fields(n.Text), " "), maxNotice)) + "\n")
	}
	if more > 0 {
		fmt.Fprintf(&b, "+%d more: check_background list=true\n", more)
	}
	b.WriteString("</background-results>")
	return b.String()
}
