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

// masker replaces secrets with their names, in one pass for any number of secrets. It
// finds a value in the forms that servers give it, in any letter case: as it is, and with
// escapes of URLs, JSON and HTML for any of its characters. It also finds it in base64, in
// both alphabets, at each alignment and broken into lines, and in hexadecimal.
//
// Masking is a second line of defense: a value in any other form is not found.
//
// The zero value masks nothing. It is safe for concurrent use.
type masker struct {
	mu      sync.RWMutex
	secrets int
	bytes   [256]uint64 // for each byte that a text can contain: the bits of the form bytes that differ from it
	skip    uint64      // bits of the form bytes that white space must not precede
	trees   [buckets]node
}

// A pass looks for the first bytes of all forms at once, so it reads each byte of a text
// and decodes each escape once. Each match is compared with the trees of forms.
//
// It is a shift-or from the end of a piece of text to its beginning, because the size of an
// escape is only known at its beginning. Bit k*buckets+b of the state at a place is clear if
// the text continues with byte k of a form in bucket b, and with the bytes after it.
const (
	firstBytes = 8 // a shorter form continues with any bytes
	buckets    = 64 / firstBytes
	isFirst    = 1<<buckets - 1 // bits of the first byte of all forms
	noForm     = 1<<64 - 1      // the state where no form continues
)

// piece is how many bytes of a text one pass reads.
const piece = 384

// states holds the results of a pass for each byte of a piece, and for the bytes after it.
type states struct {
	bits   [piece + maxEscape]uint64
	spaces [piece + maxEscape]uint8 // how many characters of white space follow from here on, counted to just above maxSpaces
}

// add masks value from now on, as "[secret NAME]". A value shorter than [MinSecret] is not
// masked.
func (m *masker) add(name, value string) {
	if len(value) < MinSecret {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.secrets++; m.secrets == 1 {
		for c := range m.bytes {
			m.bytes[c] = noForm
		}
		m.skip = noForm
	}

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
	if len(text) < MinSecret { // another case of a letter can be shorter
		return
	}

	bucket := e.bucket(text)
	if !m.trees[bucket].insert(text, &f) {
		return
	}

	for k := range firstBytes {
		bit := uint64(1) << (k*buckets + bucket)
		if e.lines && k > 0 {
			m.skip &^= bit
		}
		if k >= len(text) {
			for c := range m.bytes {
				m.bytes[c] &^= bit
			}
			continue
		}
		for _, c := range e.fold.from[text[k]] {
			m.bytes[c] &^= bit
		}
	}
}

// empty reports whether m has nothing to mask.
func (m *masker) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.secrets == 0
}

// errLonger is the error for a masked text that exceeds its limit.
var errLonger = errors.New("too long with the marks of secrets")

// within returns text with every secret masked, in at most limit bytes. If text has
// none, it returns text itself. The error is that of ctx, or errLonger, since marks can
// be longer than values.
func (m *masker) within(ctx context.Context, text []byte, limit int64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.secrets == 0 {
		return text, nil
	}

	var out []byte
	done := 0 // bytes of text copied to out
	for found := range m.search(text).places(ctx) {
		if out == nil {
			out = make([]byte, 0, len(text)+len(found.mark))
		}
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

// string is like within, but for a string and without limits.
func (m *masker) string(text string) string {
	out, _ := m.within(context.Background(), []byte(text), math.MaxInt64)
	return string(out)
}

// has reports whether a text contains a secret.
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
		more := true
		for ; more && s.begin < len(s.text) && ctx.Err() == nil; s.begin += piece {
			more = s.inPiece(yield)
		}
	}
}

// inPiece yields the secrets that begin in the piece, and returns false to stop.
func (s *search) inPiece(yield func(place) bool) bool {
	starts := s.pass(s.text[s.begin:], min(piece, len(s.text)-s.begin), &s.states)
	for k := len(starts) - 1; k >= 0; k-- {
		i := starts[k]
		start := s.begin + int(i)
		if start < s.done || !s.at(start, s.states.bits[i]) {
			continue
		}
		start, s.done = s.found.neighbors(s.text, s.done, start, s.end)
		if !yield(place{start, s.done, s.found.mark}) {
			return false
		}
	}
	return true
}

// pass sets the states of the first n bytes of a text. It returns where forms may begin, from
// the last place to the first. The bytes after the first n match the rest of any form.
func (s *search) pass(text []byte, n int, states *states) []uint16 {
	clear(states.bits[n:])
	clear(states.spaces[:])
	s.known = s.begin + min(n, len(text)-maxEscape)

	next, here, from, bytes, starts := uint64(0), states.bits[:n], text[:n], &s.bytes, 0
	for i := n - 1; i >= 0; i-- {
		c := from[i]
		state := bytes[c] | next>>buckets
		switch kind := kinds[c]; {
		case kind == plain:
		case kind == space:
			state &= s.skip | states.afterSpace(i, 1)
		case i+1 == len(text) || kind&follows[text[i+1]] == 0:
			s.read[i] = reading{rune(c), 1}
		default:
			char, size := short[text[i+1]], 2
			if kind != backslash {
				char, size = percentEncoded(text[i:]), 3
			}
			if 0 < char && char < utf8.RuneSelf {
				state &= s.step(char, size, states, i)
			} else {
				state &= s.escaped(text[i:], states, i)
			}
		}
		here[i], next = state, state

		s.starts[starts] = uint16(i)
		if state&isFirst != isFirst {
			starts++
		}
	}
	return s.starts[:starts]
}

// step returns the state for an escape of an ASCII character.
func (s *search) step(char byte, size int, states *states, at int) uint64 {
	s.read[at] = reading{rune(char), int32(size)}
	state := s.bytes[char] | states.bits[at+size]>>buckets
	if kinds[char] == space {
		state &= s.skip | states.afterSpace(at, size)
	}
	return state
}

// escaped returns the state for the escape that a text begins with.
func (s *search) escaped(text []byte, states *states, at int) (state uint64) {
	r, size := unescape(text)
	char := byte(max(r, -r))
	switch {
	case size == 0:
		s.read[at] = reading{rune(text[0]), 1}
		return noForm
	case -utf8.RuneSelf < r && r < utf8.RuneSelf:
		return s.step(char, size, states, at)
	}

	s.read[at] = reading{r, int32(size)}
	next := states.bits[at+size]
	state = noForm
	if r < 0 { // a Latin-1 byte
		state, r = s.bytes[char]|next>>buckets, -r
	}
	var chars [utf8.UTFMax]byte
	for k := utf8.EncodeRune(chars[:], r) - 1; k >= 0; k-- {
		next = s.bytes[chars[k]] | next>>buckets
	}
	return state & next
}

// afterSpace returns the state after white space.
func (s *states) afterSpace(at, size int) uint64 {
	s.spaces[at] = min(s.spaces[at+size], maxSpaces) + 1
	if s.spaces[at] > maxSpaces {
		return noForm
	}
	return s.bits[at+size]
}
