package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"math/bits"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"
)

// masker replaces secrets by their names, in one pass for some dozens of secrets. It finds
// a value in the forms that servers give it, in any letter case: as it is, and with
// escapes of URLs, JSON and HTML for any of its characters. It also finds it in base64, in
// both alphabets, at each alignment and broken into lines, and in hexadecimal.
//
// Masking is a second line of defense: a value in any other form is not found.
//
// The zero value masks nothing. It is safe for concurrent use.
type masker struct {
	mu     sync.RWMutex
	values map[string]bool
	steps  [256]step // by byte of a text
	forms  [buckets][]*form
}

// A pass looks for the first bytes of all forms at once, so it reads each byte of a text
// and decodes each escape once. Each match is compared with the forms of its bucket.
//
// It goes from the end of a piece of text to its beginning, because the size of an escape
// is only known at its beginning. The state at a place is a set of bits: k*buckets+b says
// that the text goes on with byte k of a form in bucket b, and with the bytes after it.
const (
	firstBytes = 4
	buckets    = 64 / firstBytes

	isFirst = 1<<buckets - 1                          // bits of the first byte of all forms
	isLast  = isFirst << (buckets * (firstBytes - 1)) // bits of the last byte that a pass looks for
)

// step is how a byte of a text changes the state.
type step struct {
	is   uint64 // bits of the form bytes that it matches
	skip uint64 // bits that it keeps: it can be white space in base64
}

// form is one encoding of a secret.
type form struct {
	mark   string
	text   []byte     // folded
	fold   *[256]byte // folding of the text that is compared
	base64 bool       // it may be broken into lines
	shared [2]bool    // the characters before and after it also have bits of the value
	least  int        // bytes of text that are masked even if cut off at the end of a response
}

// minPrefix is how many bytes of a secret are masked even if cut off at the end of a
// response.
const minPrefix = 8

// foldText ignores case, and treats + as a space, as in a query. foldBase64 treats
// the URL alphabet as the standard one.
var foldText, foldBase64 = folds()

func folds() (text, base64 *[256]byte) {
	text, base64 = new([256]byte), new([256]byte)
	for i := range 256 {
		text[i], base64[i] = byte(i), byte(i)
	}
	for c := byte('A'); c <= 'Z'; c++ {
		text[c] += 'a' - 'A'
	}
	text['+'] = ' '
	base64['-'], base64['_'] = '+', '/'
	return text, base64
}

// add masks value from now on, as "[secret NAME]". A value shorter than [MinSecret] is not
// masked.
func (m *masker) add(name, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(value) < MinSecret || m.values[value] {
		return
	}
	if m.values == nil {
		m.values = map[string]bool{}
	}
	m.values[value] = true

	mark := "[secret " + name + "]"
	seen := map[string]bool{}
	for _, text := range []string{value, strings.ToLower(value), strings.ToUpper(value)} { // for non-ASCII letters
		folded := []byte(text)
		for i, c := range folded {
			folded[i] = foldText[c]
		}
		if !seen[string(folded)] {
			seen[string(folded)] = true
			m.insert(&form{mark: mark, text: folded, fold: foldText, least: minPrefix})
		}
	}
	m.insert(&form{mark: mark, text: []byte(hex.EncodeToString([]byte(value))), fold: foldText, least: 2 * minPrefix})
	for offset := range 3 {
		m.insert(&form{
			mark: mark, text: []byte(aligned(value, offset)), fold: foldBase64, base64: true,
			shared: [2]bool{offset > 0, (offset+len(value))%3 != 0}, least: base64.RawStdEncoding.EncodedLen(minPrefix),
		})
	}
}

// aligned returns the part of a value's base64 that does not depend on the surrounding
// bytes, for a value that starts offset bytes after a multiple of three.
func aligned(value string, offset int) string {
	text := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), value...))
	if offset > 0 {
		text = text[offset+1:]
	}
	if (offset+len(value))%3 != 0 {
		text = text[:len(text)-1]
	}
	return text
}

// insert adds a form to the tables of the pass, in a bucket of its own while there are any.
// After that the last byte that a pass looks for decides, because many secrets begin alike.
func (m *masker) insert(f *form) {
	bucket := int(f.text[firstBytes-1]) % buckets
	for b, forms := range m.forms {
		if len(forms) == 0 {
			bucket = b
			break
		}
	}
	m.forms[bucket] = append(m.forms[bucket], f)

	for k := range firstBytes {
		bit := uint64(1) << (k*buckets + bucket)
		for c := range m.steps {
			if f.fold[c] == f.text[k] {
				m.steps[c].is |= bit
			}
			if f.base64 && k > 0 && isSpace(byte(c)) {
				m.steps[c].skip |= bit
			}
		}
	}
}

// empty reports whether m has nothing to mask.
func (m *masker) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.values) == 0
}

// errLonger is the error of a masked text that is longer than its limit.
var errLonger = errors.New("too long with the marks of secrets")

// within returns text with every secret masked, in at most limit bytes; if it has none,
// text itself. The error is that of ctx, or errLonger, since marks can be longer than
// values.
func (m *masker) within(ctx context.Context, text []byte, limit int64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.values) == 0 {
		return text, nil
	}

	var out []byte
	done := 0 // bytes of text copied to out
	for found := range m.find(ctx, text) {
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
	for range m.find(context.Background(), []byte(text)) {
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

// piece is how many bytes of a text one pass reads.
const piece = 512

// find returns the secrets of a text until ctx ends.
func (m *masker) find(ctx context.Context, text []byte) iter.Seq[place] {
	return func(yield func(place) bool) {
		var states [piece + maxEscape]uint64
		done := 0
		for begin := 0; begin < len(text) && ctx.Err() == nil; begin += piece {
			n := min(piece, len(text)-begin)
			if m.pass(text[begin:], n, &states)&isFirst == 0 {
				continue
			}

			for i, state := range states[:n] {
				start := begin + i
				if state&isFirst == 0 || start < done {
					continue
				}
				f, end := m.longest(text, start, state)
				if f == nil {
					continue
				}

				start, end = f.neighbors(text, done, start, end)
				if done = end; !yield(place{start, end, f.mark}) {
					return
				}
			}
		}
	}
}

// pass sets the states of the first n bytes of a text, and returns the union of their bits.
// The bytes after them match the rest of any form.
func (m *masker) pass(text []byte, n int, states *[piece + maxEscape]uint64) (all uint64) {
	next := ^uint64(0)
	for i := range maxEscape {
		states[n+i] = next
	}

	here, from := states[:n], text[:n]
	for i := n - 1; i >= 0; i-- {
		c := from[i]
		state := m.step(c, next)
		if isEscape(c) && i+1 < len(text) {
			switch after := text[i+1]; {
			case alphanumeric(after) || after == '#':
				state |= m.unescaped(text[i:], states[i:])
			case c == '\\': // followed by no letter or digit: see short
				state |= m.step(after, states[i+2])
			}
		}
		here[i], next = state, state
		all |= state
	}
	return all
}

// step returns the state of a byte before a text with the state next.
func (m *masker) step(c byte, next uint64) uint64 {
	s := &m.steps[c]
	return s.is&(next>>buckets) | (s.skip&next | s.is&isLast)
}

// unescaped returns the state for the escape that a text begins with, or none.
func (m *masker) unescaped(text []byte, states []uint64) (state uint64) {
	r, size := unescape(text)
	if size == 0 {
		return 0
	}

	next := states[size]
	if r < utf8.RuneSelf {
		state = m.step(byte(max(r, -r)), next)
		if r > -utf8.RuneSelf {
			return state
		}
		r = -r // a Latin-1 byte
	}
	var char [utf8.UTFMax]byte
	for k := utf8.EncodeRune(char[:], r) - 1; k >= 0; k-- {
		next = m.step(char[k], next)
	}
	return state | next
}

// longest returns the longest form that begins at a position with that state.
func (m *masker) longest(text []byte, start int, state uint64) (found *form, end int) {
	for first := state & isFirst; first != 0; first &= first - 1 {
		for _, f := range m.forms[bits.TrailingZeros64(first)] {
			if e := f.match(text, start); e > end {
				found, end = f, e
			}
		}
	}
	return found, end
}

// neighbors extends a base64 match by adjacent characters that also have bits of the value,
// but not before from.
func (f *form) neighbors(text []byte, from, start, end int) (int, int) {
	if f.shared[0] && start > from && isBase64(text[start-1]) && !endsEscape(text[from:start]) {
		start--
	}
	if f.shared[1] && end < len(text) && isBase64(text[end]) {
		end++
		for n := 0; n < 2 && end < len(text) && text[end] == '='; n++ {
			end++
		}
	}
	return start, end
}

// match returns where a form that begins at a position ends, or 0.
func (f *form) match(text []byte, at int) (end int) {
	k := 0
	for ; k < len(f.text) && at < len(text) && f.fold[text[at]] == f.text[k] && !isEscape(text[at]); k++ {
		at++
	}

	end, other := f.matchAs(text, at, k, anyEscape)
	for i := 0; end == 0 && other && i < len(readings); i++ {
		end, _ = f.matchAs(text, at, k, readings[i])
	}
	return end
}

// anyEscape reads the escapes of every language.
const anyEscape = 0

// readings are the ways to read a text: with the escapes of one language, or without any.
// Each takes the escapes of other languages as plain text.
var readings = []byte{'%', '\\', '&', ' '}

// matchAs is match from byte k of a form on, with the escapes of one language. other reports
// that one of them could also be read as plain text.
func (f *form) matchAs(text []byte, at, k int, only byte) (end int, other bool) {
	for spaces := 0; k < len(f.text); {
		if at >= len(text) {
			return f.cut(text, k), other
		}

		c := text[at]
		plain := f.fold[c] == f.text[k]
		if isEscape(c) && (only == anyEscape || only == c) {
			r, size := unescape(text[at:])
			n := f.has(r, k)
			switch {
			case size > 0 && n > 0:
				other = other || plain
				at, k, spaces = at+size, k+n, 0
				continue
			case size > 0 && f.base64 && r < utf8.RuneSelf && isSpace(byte(max(r, -r))) && k > 0 && spaces < maxSpaces:
				at, spaces = at+size, spaces+1
				continue
			case !plain && len(text)-at < maxEscape && beginsEscape.Match(text[at:]):
				return f.cut(text, k), other
			}
		}

		switch {
		case plain:
			at, k, spaces = at+1, k+1, 0
		case f.base64 && isSpace(c) && k > 0 && spaces < maxSpaces:
			at, spaces = at+1, spaces+1
		default:
			return 0, other
		}
	}
	return at, other
}

// maxSpaces is how many characters may separate two lines of base64.
const maxSpaces = 16

// cut returns the end of a text that ends after k bytes of a form, if that is enough to
// mask.
func (f *form) cut(text []byte, k int) int {
	if k >= f.least {
		return len(text)
	}
	return 0
}

// has returns how many bytes of a form, from byte k on, match the result of unescape, or 0.
func (f *form) has(r rune, k int) int {
	if r < utf8.RuneSelf {
		if f.fold[byte(max(r, -r))] == f.text[k] {
			return 1
		}
		if r > -utf8.RuneSelf {
			return 0
		}
		r = -r // a Latin-1 byte
	}

	var char [utf8.UTFMax]byte
	n := utf8.EncodeRune(char[:], r)
	if n > len(f.text)-k {
		return 0
	}
	for i, c := range char[:n] {
		if f.fold[c] != f.text[k+i] {
			return 0
		}
	}
	return n
}

func isEscape(c byte) bool { return c == '%' || c == '\\' || c == '&' }
func isSpace(c byte) bool  { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
func isBase64(c byte) bool { return alphanumeric(c) || strings.IndexByte("+/-_", c) >= 0 }
