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

// Results go to stdout, everything else to stderr. An error is a line that starts
// with "toolhost:", without a capital letter and a period. A hint says what to do
// next. Progress bars appear only on a terminal.

// ui has the streams of a command.
type ui struct {
	in       io.Reader
	out, err io.Writer
	json     bool  // print JSON on stdout, errors included
	lost     error // first error of printing a result
}

func (u *ui) printf(format string, args ...any) { u.print(fmt.Sprintf(format, args...)) }

// print prints a result. A failure, such as a full disk, is an error of the
// command.
func (u *ui) print(text string) {
	if err := show(u.out, text); u.lost == nil {
		u.lost = err
	}
}

// notef prints a note, without control characters, so that a plugin's text in it
// cannot pass for a line of the host.
func (u *ui) notef(format string, args ...any) { _, _ = u.err.Write(noteLine(format, args...)) }

// show prints a result, which may be a plugin's: on a terminal without control
// characters.
func show(w io.Writer, text string) error {
	if terminal(w) > 0 {
		text = string(fit([]byte(text)))
	}
	_, err := io.WriteString(w, text)
	return err
}

// fit makes text safe for a terminal: without control characters, and with
// invisible characters made visible, such as an override of the writing direction.
func fit(text []byte) []byte { return human.Visible([]byte(server.Clean(text))) }

// noteLine formats a line without terminal control. Nothing in it can overwrite its
// beginning.
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

// answer prints an answer as JSON, or for people. With JSON, an error is part of
// the answer or follows from it, and is not printed again.
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

// table prints rows with their cells in columns.
func (u *ui) table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a Builder never fails
	u.print(text.String())
}

// reply prints an answer without an error of its own, unless err says that there is none.
func (u *ui) reply(v any, err error, people func()) error {
	if err != nil {
		return err
	}
	return u.answer(v, nil, people)
}

// list prints a table with a header, or a line if it has no other rows.
func (u *ui) list(rows [][]string, none string) {
	if len(rows) == 1 {
		u.printf("%s\n", none)
		return
	}
	u.table(rows)
}

// dateTime formats a time for a table, in the time zone of the reader.
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

// oneLine makes a plugin's text safe within a line: it cannot move the cursor or
// hide anything.
func oneLine(s string) string {
	spaces := strings.NewReplacer("\r", " ", "\n", " ", "\t", " ")
	return string(fit([]byte(spaces.Replace(s))))
}

// plural formats a number of things.
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
