package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

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
