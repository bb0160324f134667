package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"
)

// masker replaces secrets by their names, in one pass for any number of secrets. It finds
// a value in the forms that servers give it, in any letter case: as it is, and with
// escapes of URLs, JSON and HTML for any of its characters. It also finds it in base64, in
// both alphabets, at each alignment and broken into lines, and in hexadecimal.
//
// Masking is a second line of defense: a value in any other form is not found.
//
// The zero value masks nothing. It is safe for concurrent use.
type masker struct {
	mu    sync.RWMutex
	bytes [256]uint64 // by byte of a text: the bits of the form bytes that it matches
	skip  uint64      // bits that white space keeps
	trees [len(encodings)]node
}

// A pass looks for the first bytes of all forms at once, so it reads each byte of a text
// and decodes each escape once. Each match is compared with the trees of forms.
//
// It goes from the end of a piece of text to its beginning, because the size of an escape
// is only known at its beginning. The state at a place is a set of bits: k*buckets+b says
// that the text goes on with byte k of a form in bucket b, and with the bytes after it.
const (
	firstBytes = MinSecret
	buckets    = 64 / firstBytes

	isFirst = 1<<buckets - 1                          // bits of the first byte of all forms
	isLast  = isFirst << (buckets * (firstBytes - 1)) // bits of the last byte that a pass looks for
)

// piece is how many bytes of a text one pass reads.
const piece = 512

// states are the results of a pass for each byte of a piece, and for the bytes after it.
type states struct {
	bits   [piece + maxEscape]uint64
	spaces [piece + maxEscape]uint8 // how many characters are white space from here on, up to more than maxSpaces
}

// add masks value from now on, as "[secret NAME]". A value shorter than [MinSecret] is not
// masked.
func (m *masker) add(name, value string) {
	if len(value) < MinSecret {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	f := form{mark: "[secret " + name + "]"}
	m.insert(asText, value, f)
	m.insert(asText, strings.ToLower(value), f) // for non-ASCII letters
	m.insert(asText, strings.ToUpper(value), f)
	m.insert(asHex, hex.EncodeToString([]byte(value)), f)
	for offset := range 3 {
		f.shared = [2]bool{offset > 0, (offset+len(value))%3 != 0}
		m.insert(asBase64, aligned(value, offset), f)
	}
}

// aligned returns the part of a value's base64 that does not depend on the surrounding
// bytes, for a value that starts offset bytes after a multiple of three.
func aligned(value string, offset int) string {
	text := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), value...))
	return text[(offset*8+5)/6 : (offset+len(value))*8/6]
}

// insert adds a form to its tree and to the tables of the pass.
func (m *masker) insert(as int, value string, f form) {
	e, text := &encodings[as], []byte(value)
	for i, c := range text {
		text[i] = e.fold.to[c]
	}
	if len(text) < firstBytes || !m.trees[as].insert(text, &f) { // another case of a letter can be shorter
		return
	}

	for k := range firstBytes {
		bit := uint64(1) << (k*buckets + e.bucket(text))
		for _, c := range e.fold.from[text[k]] {
			m.bytes[c] |= bit
		}
		if e.lines && k > 0 {
			m.skip |= bit
		}
	}
}

// empty reports whether m has nothing to mask.
func (m *masker) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.trees[asText].index == nil
}

// errLonger is the error of a masked text that is longer than its limit.
var errLonger = errors.New("too long with the marks of secrets")

// within returns text with every secret masked, in at most limit bytes; if it has none,
// text itself. The error is that of ctx, or errLonger, since marks can be longer than
// values.
func (m *masker) within(ctx context.Context, text []byte, limit int64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.trees[asText].index == nil {
		return text, nil
	}

	var out []byte
	done := 0 // bytes of text copied to out
	for found := range m.search(text).places(ctx) {
		out = append(append(out, text[done:found.start]...), found.mark...)
		if done = found.end; int64(len(out)) > limit {
			return nil, errLonger
		}
	}

	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case done == 0:
		return text, nil
	case int64(len(out)+len(text)-done) > limit:
		return nil, errLonger
	}
	return append(out, text[done:]...), nil
}

// string is within for a string, without limits.
func (m *masker) string(text string) string {
	out, _ := m.within(context.Background(), []byte(text), math.MaxInt64)
	return string(out)
}

// has reports whether a text has a secret.
func (m *masker) has(text string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for range m.search([]byte(text)).places(context.Background()) {
		return true
	}
	return false
}

// header masks values, and removes fields whose name contains a secret.
func (m *masker) header(h http.Header) {
	if m.empty() {
		return
	}
	for name, values := range h {
		if m.has(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = m.string(v)
		}
	}
}

// place is the position of a secret in a text.
type place struct {
	start, end int
	mark       string
}

// places returns the secrets of the text until ctx ends.
func (s *search) places(ctx context.Context) iter.Seq[place] {
	return func(yield func(place) bool) {
		var states states
		done := 0
		for begin := 0; begin < len(s.text) && ctx.Err() == nil; begin += piece {
			n := min(piece, len(s.text)-begin)
			if s.pass(s.text[begin:], n, &states)&isFirst == 0 {
				continue
			}

			for i, state := range states.bits[:n] {
				start := begin + i
				if state&isFirst == 0 || start < done || !s.at(start, state) {
					continue
				}
				start, done = s.found.neighbors(s.text, done, start, s.end)
				if !yield(place{start, done, s.found.mark}) {
					return
				}
			}
		}
	}
}

// pass sets the states of the first n bytes of a text, and returns the union of their bits.
// The bytes after them match the rest of any form.
func (m *masker) pass(text []byte, n int, states *states) (all uint64) {
	next := ^uint64(0)
	for i := range maxEscape {
		states.bits[n+i] = next
	}
	clear(states.spaces[:])

	here, from := states.bits[:n], text[:n]
	for i := n - 1; i >= 0; i-- {
		c := from[i]
		state := m.bytes[c] & (next>>buckets | isLast)
		if isSpace(c) {
			state |= m.skip & states.afterSpace(i, 1)
		}
		if isEscape(c) && i+1 < len(text) {
			switch after := text[i+1]; {
			case alphanumeric(after) || after == '#':
				state |= m.unescaped(text[i:], states, i)
			case c == '\\': // followed by no letter or digit: see short
				state |= m.step(after, states, i, 2)
			}
		}
		here[i], next = state, state
		all |= state
	}
	return all
}

// step returns the state of a character of one byte that has a size in the text.
func (m *masker) step(char byte, states *states, at, size int) uint64 {
	state := m.bytes[char] & (states.bits[at+size]>>buckets | isLast)
	if isSpace(char) {
		state |= m.skip & states.afterSpace(at, size)
	}
	return state
}

// afterSpace returns the state after white space, or none if there is too much of it.
func (s *states) afterSpace(at, size int) uint64 {
	s.spaces[at] = min(s.spaces[at+size], maxSpaces) + 1
	if s.spaces[at] > maxSpaces {
		return 0
	}
	return s.bits[at+size]
}

// unescaped returns the state for the escape that a text begins with, or none.
func (m *masker) unescaped(text []byte, states *states, at int) (state uint64) {
	r, size := unescape(text)
	if size == 0 {
		return 0
	}

	if r < utf8.RuneSelf {
		state = m.step(byte(max(r, -r)), states, at, size)
		if r > -utf8.RuneSelf {
			return state
		}
		r = -r // a Latin-1 byte
	}
	next := states.bits[at+size]
	var char [utf8.UTFMax]byte
	for k := utf8.EncodeRune(char[:], r) - 1; k >= 0; k-- {
		next = m.bytes[char[k]] & (next>>buckets | isLast)
	}
	return state | next
}
