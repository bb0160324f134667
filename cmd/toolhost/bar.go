package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// bar is a progress bar on the last line of a terminal, below the output. If the
// stream is not a terminal, it draws nothing. It is safe for concurrent use.
type bar struct {
	mu    sync.Mutex
	w     io.Writer
	width int
	quiet bool    // whether a question is open, over which nothing may be drawn
	line  string  // line as drawn; empty if nothing is drawn
	open  *output // output with an unfinished line; nil if the next text begins a line
}

func newBar(w io.Writer) *bar { return &bar{w: w, width: terminal(w)} }

// notef prints a line above the bar.
func (b *bar) notef(format string, args ...any) {
	_, _ = b.above(&output{to: b.w}, noteLine(format, args...))
}

// above writes output while the bar is erased, to a stream that may be on the same
// terminal. After an unfinished line, the bar stays hidden until it is set again.
// Text from another output begins a new line, and each line begins with the mark of
// its output.
func (b *bar) above(o *output, p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := b.line
	b.draw("")
	if b.open != o {
		b.finish()
	}

	n, err := o.to.Write(o.marked(p, b.open == o))
	if bytes.HasSuffix(p, []byte("\n")) {
		b.open = nil
		b.draw(line)
	} else if o.mark != "" && len(p) > 0 {
		b.open = o
	}
	return n, err
}

// finish ends the unfinished line of an output. The caller holds b.mu.
func (b *bar) finish() {
	if b.open != nil {
		fmt.Fprintln(b.open.to)
		b.open = nil
	}
}

const barWidth = 24

// set redraws the bar. If total is 0, it shows only the count.
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
	if !b.quiet {
		b.draw(fill(oneLine(line), b.width-1))
	}
}

// pause hides the bar, even when it is set, until it is called with false.
func (b *bar) pause(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = on
	b.draw("")
}

// clear hides the bar until it is set again.
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
	if line != "" {
		b.finish()
	}
	fmt.Fprint(b.w, line)
	b.line = line
}

// fill cuts a line to the given number of columns, because a wrapped line could not
// be redrawn in place. It counts characters that may be two columns wide as two.
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

// output shows a stream that a tool writes: above the bar, and without control
// characters if it goes to a terminal. It is used by one goroutine at a time. Call
// end after the last write.
type output struct {
	bar  *bar
	to   io.Writer
	mark string // prefix of each line; empty if the stream cannot be mistaken for the host's own
	safe bool   // whether to remove control characters
	part []byte // incomplete character or escape sequence, if safe is set
}

// output returns an output that writes to a stream used by nothing else.
func (b *bar) output(to io.Writer) *output {
	return &output{bar: b, to: to, safe: terminal(to) > 0}
}

// live returns an output for a tool's live output, which goes to the same stream as
// the host's own messages. Each line is marked and has no control characters, so
// that it cannot pass for one of those messages.
func (b *bar) live(tool string) *output {
	return &output{bar: b, to: b.w, mark: oneLine(tool) + " | ", safe: true}
}

func (o *output) Write(p []byte) (int, error) {
	shown := p
	if o.safe {
		whole := append(o.part, p...)
		n := len(whole) - server.Partial(whole)
		shown, o.part = fit(whole[:n]), slices.Clone(whole[n:])
	}

	if _, err := o.bar.above(o, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}

// marked puts the mark before each line that begins in p.
func (o *output) marked(p []byte, within bool) []byte {
	if o.mark == "" {
		return p
	}

	var out []byte
	for line := range bytes.Lines(p) {
		if !within {
			out = append(out, o.mark...)
		}
		out, within = append(out, line...), false
	}
	return out
}

// end shows any incomplete character, and ends the last line of marked output.
func (o *output) end() {
	if len(o.part) > 0 {
		_, _ = o.bar.above(o, fit(o.part))
		o.part = nil
	}

	o.bar.mu.Lock()
	defer o.bar.mu.Unlock()
	o.bar.finish()
}

// take writes a piece of a run's output. If bytes before it were omitted, it first
// writes a line that says so.
func (o *output) take(piece wire.Output) {
	if piece.Omitted > 0 {
		o.end()
		if o.mark == "" { // otherwise its line has ended already
			fmt.Fprintln(o)
		}
		fmt.Fprintf(o, "[system] %d bytes omitted\n", piece.Omitted)
	}
	data := piece.Base64
	if data == nil {
		data = []byte(piece.Text)
	}
	_, _ = o.Write(data) // fails only if nobody reads the output
}
