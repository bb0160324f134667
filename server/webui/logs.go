package webui

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxWatched  = 20       // runs whose last lines are shown
	watchedTail = 2 << 10  // bytes read from the end of each
	watchedLast = 6        // lines shown of each
	maxSearched = 200      // runs that a search reads
	maxLogRead  = 16 << 20 // bytes of output that a search reads
	maxFound    = 300      // lines that a search finds
	maxFoundRun = 20       // lines of one run, if several are searched
	maxLogLine  = 400      // bytes shown of a line
	logBefore   = 100      // bytes shown before the match
	logPiece    = 256 << 10
)

// A logFilter selects the output of runs, as the user typed it.
type logFilter struct {
	Text                       string // empty shows the last lines
	Run, Tool, Plugin, Session string // empty: all
	Before                     string // only runs older than this one
}

func newLogFilter(q url.Values) (f logFilter, err error) {
	f.Before = q.Get("before")
	for name, to := range map[string]*string{"run": &f.Run, "tool": &f.Tool, "plugin": &f.Plugin, "session": &f.Session} {
		*to = strings.TrimSpace(q.Get(name))
	}
	f.Text = q.Get("text")
	for _, text := range []string{f.Text, f.Run, f.Tool, f.Plugin, f.Session} {
		if len(text) > maxSession {
			return f, refuse(http.StatusBadRequest, "A parameter is too long")
		}
	}
	for _, id := range []string{f.Run, f.Before} {
		if id != "" && !wire.IsRunID(id) {
			return f, refuse(http.StatusBadRequest, "The parameters run and before are run ids")
		}
	}
	return f, nil
}

// Given reports whether there is something to clear in the form.
func (f logFilter) Given() bool { f.Before = ""; return f != logFilter{} }

// with returns the address of the same search in one run, or before one.
func (f logFilter) with(run, before string) string {
	return address("/ui/logs", map[string]string{
		"text": f.Text, "run": run, "tool": f.Tool, "plugin": f.Plugin, "session": f.Session, "before": before,
	})
}

// logList is the content of the page of logs.
type logList struct {
	Filter logFilter
	Runs   []runLog
	Lines  int    // lines found
	Read   int64  // bytes searched
	Cut    bool   // the searched run was not read to its end
	Next   string // address of the search in older runs; empty if there are none
	Newest string // address of the search in the newest runs; empty on its page
}

// A runLog has lines of the output of a run.
type runLog struct {
	wire.Run
	Lines []logLine
	More  string // address of a search in this run, if it may have more lines
}

// A logLine is a line of output.
type logLine struct{ Parts []linePart }

// A linePart is a part of a line: a match, or the text around one.
type linePart struct {
	Text  string
	Found bool
}

// logs shows the last lines of runs, or the lines that contain a text.
func (s *site) logs(r *http.Request) (page, error) {
	f, err := newLogFilter(r.URL.Query())
	if err != nil {
		return page{}, err
	}

	v := logList{Filter: f}
	if f.Text == "" {
		err = s.watch(r.Context(), &v)
	} else {
		err = s.search(r.Context(), &v)
	}
	if err != nil {
		return page{}, err
	}
	return page{title: "Logs", menu: "/ui/logs", sections: []section{{"log-filter", v}, {"logs", v}}, still: f.Text != ""}, nil
}

// query returns the query for the runs of a filter.
func (f logFilter) query(limit int) (q server.RunQuery) {
	q = server.RunQuery{Session: f.Session, Before: f.Before, Limit: limit}
	q.Tool, q.Plugin = f.Tool, f.Plugin
	return q
}

// runsOf returns the run that a filter names, or the runs that it selects, newest first.
func (s *site) runsOf(ctx context.Context, f logFilter, q server.RunQuery) ([]wire.Run, error) {
	if f.Run == "" {
		return s.service.AllSessions().Runs(ctx, q)
	}
	run, err := s.find(ctx, f.Run)
	return []wire.Run{run}, err
}

// watch finds the last lines of active runs, then of others.
func (s *site) watch(ctx context.Context, v *logList) error {
	q := v.Filter.query(maxWatched)
	latest, err := s.runsOf(ctx, v.Filter, q)
	if err != nil {
		return err
	}
	q.Active = true
	active, err := s.runsOf(ctx, v.Filter, q)
	if err != nil {
		return err
	}

	seen := map[string]bool{}
	for _, run := range append(active, latest...) {
		if seen[run.TaskID] || len(v.Runs) == maxWatched {
			continue
		}
		seen[run.TaskID] = true
		chunk, err := s.service.Session(run.Session).Tail(ctx, run.TaskID, -watchedTail, watchedTail)
		if notFound(err) || err == nil && len(chunk.Data) == 0 {
			continue // removed, or without output
		}
		if err != nil {
			return err
		}
		v.Runs = append(v.Runs, runLog{Run: run, Lines: lastLines(chunk)})
	}
	return nil
}

// lastLines returns the last complete lines of an output, or the end of a long line.
func lastLines(c server.Chunk) (lines []logLine) {
	text := strings.TrimSuffix(server.Clean(c.Data), "\n")
	all := strings.Split(text, "\n")
	if c.Offset > 0 && len(all) > 1 {
		all = all[1:] // the first line is incomplete
	}
	for _, line := range all[max(0, len(all)-watchedLast):] {
		lines = append(lines, logLine{[]linePart{{Text: cut(line, maxLogLine)}}})
	}
	return lines
}

// search finds lines in the output of runs, newest run first, until it has read or found
// enough.
func (s *site) search(ctx context.Context, v *logList) error {
	select { // one search at a time may read
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	case <-ctx.Done():
		return ctx.Err()
	}

	runs, err := s.runsOf(ctx, v.Filter, v.Filter.query(maxSearched))
	if err != nil {
		return err
	}
	most := maxFoundRun
	if v.Filter.Run != "" {
		most = maxFound
	}
	find := newFinder(v.Filter.Text)
	for i, run := range runs {
		lines, more, err := s.searchRun(ctx, run, find, min(most, maxFound-v.Lines), v)
		if err != nil && !notFound(err) { // a removed run has no lines
			return err
		}
		if len(lines) > 0 {
			found := runLog{Run: run, Lines: lines}
			if more && v.Filter.Run == "" {
				found.More = v.Filter.with(run.TaskID, "")
			}
			v.Runs, v.Lines = append(v.Runs, found), v.Lines+len(lines)
		}
		v.Cut = more && v.Filter.Run != ""
		if full := v.Lines >= maxFound || v.Read >= maxLogRead; v.Filter.Run == "" && (full && i+1 < len(runs) || i+1 == maxSearched) {
			v.Next = v.Filter.with("", run.TaskID)
			break
		}
	}
	if v.Filter.Before != "" {
		v.Newest = v.Filter.with("", "")
	}
	return nil
}

// searchRun finds lines of a run, up to the number most. It reports in more whether there
// may be others.
func (s *site) searchRun(ctx context.Context, run wire.Run, find finder, most int, v *logList) (lines []logLine, more bool, err error) {
	session := s.service.Session(run.Session)
	var rest []byte // beginning of a line whose end was not read yet
	for at := int64(0); ; {
		c, err := session.Tail(ctx, run.TaskID, at, logPiece)
		if err != nil {
			return lines, false, err
		}
		if c.Offset > at {
			rest = append(rest, '\n') // the part in between was not kept
		}
		last := len(c.Data) == 0 || c.Offset+int64(len(c.Data)) >= c.End
		at = c.Offset + int64(len(c.Data))
		v.Read += int64(len(c.Data))

		text := append(rest, c.Data...)
		if end := bytes.LastIndexByte(text, '\n') + 1; !last && end > 0 {
			text, rest = text[:end], bytes.Clone(text[end:])
		} else { // the last lines, or a long one
			rest = nil
		}
		lines = append(lines, find.in(server.Clean(text), most-len(lines))...)
		if full := len(lines) >= most; full || last || v.Read >= maxLogRead {
			return lines, full || !last, nil
		}
	}
}

// A finder finds a text in lines, ignoring case.
type finder struct {
	lower string
	where *regexp.Regexp
}

func newFinder(text string) finder {
	return finder{strings.ToLower(text), regexp.MustCompile("(?i)" + regexp.QuoteMeta(strings.ToValidUTF8(text, "\ufffd")))}
}

// in returns the matching lines of a text, up to the number most.
func (f finder) in(text string, most int) (found []logLine) {
	if !strings.Contains(strings.ToLower(text), f.lower) {
		return nil
	}
	for line := range strings.Lines(text) {
		if len(found) == most {
			break
		}
		if strings.Contains(strings.ToLower(line), f.lower) {
			found = append(found, f.mark(strings.TrimSuffix(line, "\n")))
		}
	}
	return found
}

// mark cuts a line to the surroundings of the first match, and marks the matches.
func (f finder) mark(line string) (l logLine) {
	if at := f.where.FindStringIndex(line); at != nil && at[0] > logBefore {
		line = "…" + strings.ToValidUTF8(line[at[0]-logBefore:], "")
	}
	line = cut(line, maxLogLine)

	from := 0
	for _, at := range f.where.FindAllStringIndex(line, -1) {
		if at[0] > from {
			l.Parts = append(l.Parts, linePart{Text: line[from:at[0]]})
		}
		l.Parts = append(l.Parts, linePart{line[at[0]:at[1]], true})
		from = at[1]
	}
	if from < len(line) {
		l.Parts = append(l.Parts, linePart{Text: line[from:]})
	}
	return l
}
