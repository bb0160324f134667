package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// output is a stream that a tool writes, on its way to where it is shown: on a
// terminal fit for one, and above the bar. It is used by one goroutine at a time,
// and ended.
type output struct {
	bar  *bar
	to   io.Writer
	seen bool   // it is shown on a terminal
	part []byte // the beginning of a character whose rest is to come; empty off a terminal
}

// output makes a stream that is shown there.
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

// end shows what is left, as nothing comes that belongs to it.
func (o *output) end() {
	if len(o.part) > 0 {
		_, _ = o.bar.above(o.to, fit(o.part))
		o.part = nil
	}
}

// take writes a piece of a run's output, with a line for what was dropped before
// it.
func (o *output) take(piece wire.Output) {
	if piece.Omitted > 0 {
		o.end()
		fmt.Fprintf(o, "\n[system] %d bytes omitted\n", piece.Omitted)
	}
	data := piece.Base64
	if data == nil {
		data = []byte(piece.Text)
	}
	_, _ = o.Write(data) // what goes wrong here is a closed pipe
}
