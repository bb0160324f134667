package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strings"
	"unicode"

	"github.com/toolhost/toolhost/server/wire"
)

// An echo compares what a run has written with its result: what a command writes is
// both. It keeps no text, apart from spaces that may be the last ones, and what came
// after a part that the server has not kept.
type echo struct {
	attempt int       // of the run
	sum     hash.Hash // of the text without the spaces around it
	begun   bool      // a character was there that is no space
	spaces  []byte    // after the text so far
	size    int       // bytes of the text so far
	broken  bool      // a part is no text

	late []wire.Output // that was not shown yet: all that the server keeps, at most
}

// take adds a piece of the output, and shows it unless a part before it is missing:
// then the result may show both. What an earlier attempt has written does not count.
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

// showLate shows what was not shown yet.
func (e *echo) showLate(show func(wire.Output)) {
	for _, piece := range e.late {
		show(piece)
	}
	e.late = nil
}

// rest returns what of a result was not shown yet; nothing if all of it was. It reports
// false if what was shown does not begin the result.
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
