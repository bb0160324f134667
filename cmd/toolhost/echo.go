package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"unicode"

	"github.com/toolhost/toolhost/server/wire"
)

// An echo compares what a run has written with its result: what a command writes is
// both. It keeps no text, apart from spaces that may be the last ones.
type echo struct {
	attempt int       // of the run
	sum     hash.Hash // of the text without the spaces around it
	begun   bool      // a character was there that is no space
	spaces  []byte    // after the text so far
	broken  bool      // a part is missing
}

// take adds a piece of the output. What an earlier attempt has written does not count.
func (e *echo) take(piece wire.Output) {
	if piece.Attempt != e.attempt {
		*e = echo{attempt: piece.Attempt}
	}
	e.add(piece.Text, piece.Omitted > 0 || piece.Base64 != nil)
}

// add adds text. Once a part is omitted, nothing equals it.
func (e *echo) add(text string, omitted bool) {
	if e.broken = e.broken || omitted; e.broken {
		return
	}
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
		e.spaces = e.spaces[:0]
	}
	e.spaces = append(e.spaces, p[len(kept):]...)
}

// is reports whether all that was added is this text, apart from spaces around it.
func (e *echo) is(text string) bool {
	var other echo
	other.add(text, false)
	e.add("", false)
	return !e.broken && bytes.Equal(e.sum.Sum(nil), other.sum.Sum(nil))
}
