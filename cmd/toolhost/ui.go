package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server"
)

// Results go to stdout, everything else to stderr. An error is one line that starts with
// "toolhost:", and has neither a capital letter at the start nor a period at the end. A
// hint says what to do next. Progress bars appear only on a terminal.

// ui holds the streams of a command.
type ui struct {
	in       io.Reader
	out, err io.Writer
	json     bool  // whether to print JSON on stdout, even for errors
	lost     error // first error of printing a result
}

func (u *ui) printf(format string, args ...any) { u.print(fmt.Sprintf(format, args...)) }

// print prints a result. If that fails, for example because the disk is full, the command
// fails.
func (u *ui) print(text string) {
	if err := show(u.out, text); u.lost == nil {
		u.lost = err
	}
}

// notef prints a note without control characters, so that text in it from a plugin cannot
// pass for a line from the host.
func (u *ui) notef(format string, args ...any) { _, _ = u.err.Write(noteLine(format, args...)) }

// show prints a result, which may come from a plugin. On a terminal, control characters
// are removed.
func show(w io.Writer, text string) error {
	if terminal(w) > 0 {
		text = string(fit([]byte(text)))
	}
	_, err := io.WriteString(w, text)
	return err
}

// fit makes a text safe for a terminal: it removes control characters, and makes
// invisible characters visible, such as an override of the writing direction.
func fit(text []byte) []byte { return human.Visible([]byte(server.Clean(text))) }

// noteLine formats a line without terminal control characters. Nothing in it can
// overwrite the beginning of the line.
func noteLine(format string, args ...any) []byte {
	return fit([]byte(strings.ReplaceAll(fmt.Sprintf(format, args...), "\r", " ") + "\n"))
}

// fail reports an error.
func (u *ui) fail(d diagnosis) {
	if u.json {
		u.printJSON(map[string]diagnosis{"error": d})
		return
	}

	for line := range strings.SplitSeq(d.Message, "\n") {
		u.notef("toolhost: %s", line)
	}
	if d.Hint != "" {
		u.notef("toolhost: hint: %s", d.Hint)
	}
}

func (u *ui) printJSON(v any) {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // all of these types can be encoded
	u.print(text.String())
}

// answer prints an answer, either as JSON or for people. In JSON, an error is part of the
// answer or follows from it, and is not printed again.
func (u *ui) answer(v any, err error, people func()) error {
	if !u.json {
		people()
		return err
	}

	u.printJSON(v)
	if err != nil {
		return &reportedError{err}
	}
	return nil
}

// table prints rows, with their cells aligned in columns.
func (u *ui) table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a Builder never fails
	u.print(text.String())
}

// reply prints an answer that contains no error, unless err says that there is no answer.
func (u *ui) reply(v any, err error, people func()) error {
	if err != nil {
		return err
	}
	return u.answer(v, nil, people)
}

// list prints a table that has a header. If there are no other rows, it prints the line
// none instead.
func (u *ui) list(rows [][]string, none string) {
	if len(rows) == 1 {
		u.printf("%s\n", none)
		return
	}
	u.table(rows)
}

// dateTime formats a time for a table, in the reader's time zone.
func dateTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// terminal returns the width of a terminal, or 0 if w is not one.
func terminal(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width == 0 {
		return 80
	}
	return width
}

// oneLine makes a plugin's text safe to print within a line: it cannot move the cursor or
// hide anything.
func oneLine(s string) string {
	spaces := strings.NewReplacer("\r", " ", "\n", " ", "\t", " ")
	return string(fit([]byte(spaces.Replace(s))))
}

// plural formats a number of things, such as 1 tool or 2 tools.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// count formats a large number for people.
func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fG", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
