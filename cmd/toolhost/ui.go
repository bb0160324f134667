package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/toolhost/toolhost/internal/human"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// Results go to stdout, everything else to stderr. An error is a line that starts
// with "toolhost:", without a capital letter and a period. A hint says what to do
// next. Progress bars appear only on a terminal.

// ui is where a command reads from and writes to.
type ui struct {
	in       io.Reader
	out, err io.Writer
	json     bool  // errors too are JSON, on stdout
	lost     error // the first error of printing a result
}

func (u *ui) printf(format string, args ...any) { u.print(fmt.Sprintf(format, args...)) }

// print prints a result. That it cannot be written, on a full disk, is an error of
// the command.
func (u *ui) print(text string) {
	if err := show(u.out, text); u.lost == nil {
		u.lost = err
	}
}

func (u *ui) notef(format string, args ...any) { _ = show(u.err, fmt.Sprintf(format+"\n", args...)) }

// show prints text that may come from plugins: on a terminal without control
// characters.
func show(w io.Writer, text string) error {
	if terminal(w) > 0 {
		text = string(fit([]byte(text)))
	}
	_, err := io.WriteString(w, text)
	return err
}

// fit makes text harmless on a terminal: without control characters, and with
// invisible characters made visible, such as an override of the writing direction.
func fit(text []byte) []byte { return human.Visible([]byte(server.Clean(text))) }

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
	_ = enc.Encode(v) // the types have nothing that cannot be encoded
	u.print(text.String())
}

// answer prints an answer as JSON, or for people. With JSON an error is part of the
// answer, or follows from it, and is not printed again.
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
	_ = w.Flush() // a Builder takes everything
	u.print(text.String())
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

// bar is a progress bar on the last line of a terminal, below the output. If the
// stream is not a terminal, it draws nothing. It is safe for concurrent use.
type bar struct {
	mu    sync.Mutex
	w     io.Writer
	width int
	line  string // as drawn; empty if nothing is drawn
}

func newBar(w io.Writer) *bar { return &bar{w: w, width: terminal(w)} }

// notef prints a line above the bar.
func (b *bar) notef(format string, args ...any) {
	line := fmt.Appendf(nil, format+"\n", args...)
	if b.width > 0 {
		line = fit(line)
	}
	_, _ = b.above(b.w, line)
}

// above writes while the bar is erased, to a stream that may be the same terminal.
// After a part of a line the bar stays away until it is set again.
func (b *bar) above(w io.Writer, p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.line
	b.draw("")
	n, err := w.Write(p)
	if bytes.HasSuffix(p, []byte("\n")) {
		b.draw(line)
	}
	return n, err
}

const barWidth = 24

// set redraws the bar. Without a total it shows only the count.
func (b *bar) set(done, total float64, message string) {
	if b.width == 0 {
		return
	}

	line := fmt.Sprintf("%.0f %s", done, message)
	if total > 0 {
		part := min(max(done/total, 0), 1)
		full := int(part * barWidth)
		line = fmt.Sprintf("%s%s %3.0f%% %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), part*100, message)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.draw(fill(oneLine(line), b.width-1))
}

// clear removes the bar until it is set again.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draw("")
}

// draw replaces the bar on the terminal. The caller holds b.mu.
func (b *bar) draw(line string) {
	if line == b.line {
		return
	}
	if b.line != "" {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
	fmt.Fprint(b.w, line)
	b.line = line
}

// fill cuts a line to so many columns: a wrapped line could not be redrawn in
// place. Characters that may be two columns wide count as two.
func fill(line string, columns int) string {
	for i, r := range line {
		if columns--; r >= '\u1100' && !strings.ContainsRune("█░…·", r) {
			columns--
		}
		if columns < 0 {
			return line[:i]
		}
	}
	return line
}

// oneLine makes text of a plugin harmless in a line: it cannot move the cursor or
// hide anything.
func oneLine(s string) string {
	return string(human.Visible([]byte(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, s))))
}

// plural counts things.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// count prints a large number for people.
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

// output shows a stream that a tool writes: above the bar, and on a terminal
// without control characters. It is for one goroutine at a time. Call end after
// the last write.
type output struct {
	bar  *bar
	to   io.Writer
	seen bool   // on a terminal
	part []byte // on a terminal: the beginning of a character whose rest is still missing
}

// output returns an output that writes to a stream.
func (b *bar) output(to io.Writer) *output {
	return &output{bar: b, to: to, seen: terminal(to) > 0}
}

func (o *output) Write(p []byte) (int, error) {
	shown := p
	if o.seen {
		whole := append(o.part, p...)
		n := len(whole) - server.PartialRune(whole)
		shown, o.part = fit(whole[:n]), slices.Clone(whole[n:])
	}

	if _, err := o.bar.above(o.to, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// end shows the beginning of a character whose rest never came.
func (o *output) end() {
	if len(o.part) > 0 {
		_, _ = o.bar.above(o.to, fit(o.part))
		o.part = nil
	}
}

// take writes a piece of a run's output, and a line about bytes that were omitted
// before it.
func (o *output) take(piece wire.Output) {
	if piece.Omitted > 0 {
		o.end()
		fmt.Fprintf(o, "\n[system] %d bytes omitted\n", piece.Omitted)
	}
	data := piece.Base64
	if data == nil {
		data = []byte(piece.Text)
	}
	_, _ = o.Write(data) // fails only if nobody reads it
}
