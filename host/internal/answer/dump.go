package answer

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// dump shortens the dump that Go's runtime writes when it fails, for example when it
// runs out of memory: the stacks of all goroutines, including its own. People and models
// only get the message and the frames of the plugin. Other text passes through unchanged
// and immediately.
type dump struct {
	began   []byte // beginning of an unfinished line outside a dump
	inDump  bool   // whether a line with a panic or a fatal error has passed
	line    []byte // unfinished line of a dump
	stack   []byte // "goroutine 1 [running]:", until one of its frames is shown
	inStack bool
	frame   []byte // function line of a frame whose file line has not come yet
	left    int    // number of lines that were left out
}

var (
	headings  = []string{"fatal error: ", "panic: "}
	goroutine = regexp.MustCompile(`^(?:goroutine \d+ .*\]|runtime stack):\n$`)
	// notOwn matches functions of Go's runtime and of the package guest.
	notOwn = regexp.MustCompile(`^(?:created by )?(?:runtime[./]|internal/|syscall\.|panic\(|_rt0_|toolhost_\w+\(|github\.com/toolhost/toolhost/guest\.)`)
	// function matches the first line of a frame.
	function = regexp.MustCompile(`^(?:.*\)|created by .*|\.\.\..*)\n$`)
	// registers matches what follows the line number of a frame.
	registers = regexp.MustCompile(` fp=0x[0-9a-f]+ sp=0x[0-9a-f]+ pc=0x[0-9a-f]+\n$`)
)

// maxDumpLine bounds a line of a dump, in bytes. A longer line belongs to something else.
const maxDumpLine = 4 << 10

// shorten returns what to show of the next piece of a stream.
func (d *dump) shorten(p []byte) []byte {
	shown := make([]byte, 0, len(p))
	for piece := range bytes.Lines(p) {
		if !d.inDump {
			shown = append(shown, piece...)
			d.pass(piece)
			continue
		}
		d.line = append(d.line, piece...)
		switch {
		case len(d.line) > maxDumpLine:
			shown = append(shown, d.end()...)
		case bytes.HasSuffix(piece, []byte("\n")):
			shown = append(shown, d.take(d.line)...)
			d.line = nil
		}
	}
	return shown
}

// pass notes a piece of a line outside a dump, after which a dump may begin.
func (d *dump) pass(piece []byte) {
	d.began = append(d.began, piece[:min(len(piece), max(0, len(headings[0])-len(d.began)))]...)
	if bytes.HasSuffix(piece, []byte("\n")) {
		d.inDump = slices.ContainsFunc(headings, func(h string) bool { return strings.HasPrefix(string(d.began), h) })
		d.began = d.began[:0]
	}
}

// take takes a line of a dump, and returns what can be shown after it.
func (d *dump) take(line []byte) (shown []byte) {
	switch {
	case !d.inStack && !goroutine.Match(line):
		return line
	case line[0] != '\t':
		shown, d.frame = d.frame, nil
	}

	switch {
	case goroutine.Match(line):
		d.left += lines(d.stack)
		d.stack, d.inStack = line, true
	case len(line) == 1:
		d.left += lines(d.stack)
		d.stack, d.inStack = nil, false
	case line[0] != '\t' && !function.Match(line): // what a plugin writes after it has recovered
		shown = append(shown, line...)
		d.left += lines(d.stack)
		d.stack, d.inStack, d.inDump = nil, false, false
	case line[0] != '\t':
		d.frame = line
	case notOwn.Match(d.frame):
		d.left += 2
		d.frame = nil
	default:
		shown = append(append(d.stack, d.frame...), registers.ReplaceAll(line, []byte("\n"))...)
		d.stack, d.frame = nil, nil
	}
	return shown
}

func lines(text []byte) int { return bytes.Count(text, []byte("\n")) }

// end returns what to show at the end of the stream.
func (d *dump) end() []byte {
	rest := d.frame
	if d.left += lines(d.stack); d.left > 0 {
		rest = fmt.Appendf(rest, "[%d lines about Go's runtime are left out]\n", d.left)
	}
	rest = append(rest, d.line...)
	*d = dump{}
	return rest
}

// Shorten shortens the dumps of Go's runtime in a text.
func Shorten(text []byte) []byte {
	var d dump
	return append(d.shorten(text), d.end()...)
}
