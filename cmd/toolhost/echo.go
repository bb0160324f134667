package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strings"
	"unicode"

	"github.com/toolhost/toolhost/server/wire"
)

// An echo compares the output of a run with its result: a command's stdout is both.
// It stores no text except trailing spaces, and the output after a part that the
// server has not kept.
type echo struct {
	attempt int       // attempt of the run
	sum     hash.Hash // hash of the text without surrounding spaces
	begun   bool      // a non-space character was seen
	spaces  []byte    // after the text so far
	size    int       // bytes of the text so far
	broken  bool      // a part is not text

	late []wire.Output // output not shown yet: at most all that the server keeps
}

// take adds a piece of the output, and shows it unless a part before it is missing:
// the result might then repeat it. Output of an earlier attempt does not count.
func (e *echo) take(piece wire.Output, show func(wire.Output)) {
	if piece.Attempt != e.attempt {
		e.showLate(show)
		*e = echo{attempt: piece.Attempt}
	}
	e.broken = e.broken || piece.Base64 != nil
	if len(e.late) > 0 || piece.Omitted > 0 {
		e.late = append(e.late, piece)
		return
	}
	e.add(piece.Text)
	show(piece)
}

// showLate shows the output that was not shown yet.
func (e *echo) showLate(show func(wire.Output)) {
	for _, piece := range e.late {
		show(piece)
	}
	e.late = nil
}

// rest returns the part of a result that was not shown yet. It reports false if the
// result does not begin with the shown output.
func (e *echo) rest(result string) (rest string, ok bool) {
	result = strings.TrimSpace(result)
	e.add("")
	if e.broken || e.size > len(result) || len(e.late) == 0 && e.size < len(result) {
		return "", false
	}
	begins := sha256.Sum256([]byte(result[:e.size]))
	return result[e.size:], bytes.Equal(e.sum.Sum(nil), begins[:])
}

// add adds text.
func (e *echo) add(text string) {
	if e.sum == nil {
		e.sum = sha256.New()
	}
	p := []byte(text)
	if !e.begun {
		p = bytes.TrimLeftFunc(p, unicode.IsSpace)
		e.begun = len(p) > 0
	}
	kept := bytes.TrimRightFunc(p, unicode.IsSpace)
	if len(kept) > 0 {
		e.sum.Write(e.spaces)
		e.sum.Write(kept)
		e.size += len(e.spaces) + len(kept)
		e.spaces = e.spaces[:0]
	}
	e.spaces = append(e.spaces, p[len(kept):]...)
}
