package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"
)

// masker replaces secrets by their names, in one pass whatever the number of secrets. It
// finds a value in the forms that servers give it, in any letter case: as it is, and with
// escapes of URLs, JSON and HTML for any of its characters. It also finds it in base64, in
// both alphabets, at each alignment and broken into lines, and in hexadecimal.
//
// Masking is a second line: a value in any other form is not found.
//
// The zero value masks nothing. It is safe for concurrent use.
type masker struct {
	mu     sync.RWMutex
	values map[string]bool
	begins [1 << 10]uint64 // bits of the pairs of bytes with which a form can begin
	nodes  []node          // a trie of what forms begin with once it is decoded; the root first
}

// node is a place in a trie.
type node struct {
	next  [256]uint16 // by folded byte; 0: none
	forms []*form     // that end here in the trie
}

// trieDepth is how many bytes of a form are in the trie.
const trieDepth = 4

// form is a text that stands for a secret.
type form struct {
	mark   string
	text   []byte     // folded
	fold   *[256]byte // of what is compared with text
	base64 bool       // it may be broken into lines
	shared [2]bool    // the character before it, and after it, has bits of the value too
	least  int        // bytes of text that are masked alone at the end of a response
}

// minPrefix is how many bytes of a secret are masked alone at the end of a response.
const minPrefix = 8

// foldText ignores case, and takes + for a space, as in a query. foldBase64 takes the
// alphabet of URLs for the standard one. foldBoth, for the trie, does both.
var foldText, foldBase64, foldBoth = folds()

func folds() (text, base64, both *[256]byte) {
	text, base64, both = new([256]byte), new([256]byte), new([256]byte)
	for i := range 256 {
		text[i], base64[i] = byte(i), byte(i)
	}
	for c := byte('A'); c <= 'Z'; c++ {
		text[c] += 'a' - 'A'
	}
	text['+'] = ' '
	base64['-'], base64['_'] = '+', '/'

	for i := range 256 {
		both[i] = text[base64[i]]
	}
	return text, base64, both
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
		m.values, m.nodes = map[string]bool{}, make([]node, 1)
	}
	m.values[value] = true

	mark := "[secret " + name + "]"
	seen := map[string]bool{}
	for _, text := range []string{value, strings.ToLower(value), strings.ToUpper(value)} { // for letters beyond ASCII
		if folded := foldAll(foldText, text); !seen[folded] {
			seen[folded] = true
			m.insert(&form{mark: mark, text: []byte(folded), fold: foldText, least: minPrefix})
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

func foldAll(fold *[256]byte, text string) string {
	folded := []byte(text)
	for i, c := range folded {
		folded[i] = fold[c]
	}
	return string(folded)
}

// aligned returns the part of a value's base64 that does not depend on what is before and
// after the value, for a value that starts offset bytes after a multiple of three.
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

// insert adds a form to the tables of the pass.
func (m *masker) insert(f *form) {
	for b := range 256 {
		first := byte(b)
		plain := f.fold[first] == f.text[0]
		if !plain && !isEscape(first) {
			continue
		}
		for s := range 256 {
			if plain && f.follows(byte(s)) || f.escaped(first, byte(s)) {
				pair := b<<8 | s
				m.begins[pair>>6] |= 1 << (pair & 63)
			}
		}
	}

	// A character that could begin an escape has two readings, of which only match tries
	// both.
	at := 0
	for depth := 0; depth < trieDepth && !isEscape(f.text[depth]); depth++ {
		c := foldBoth[f.text[depth]]
		if m.nodes[at].next[c] == 0 {
			m.nodes = append(m.nodes, node{})
			m.nodes[at].next[c] = uint16(len(m.nodes) - 1)
		}
		at = int(m.nodes[at].next[c])
	}
	m.nodes[at].forms = append(m.nodes[at].forms, f)
}

// follows reports whether a byte can follow the first one of a form.
func (f *form) follows(second byte) bool {
	return f.fold[second] == f.text[1] || isEscape(second) || f.base64 && isSpace(second)
}

// escaped reports whether two bytes can begin an escape of the first byte of a form.
func (f *form) escaped(first, second byte) bool {
	switch first {
	case '%':
		high := unhex(second)
		for low := range 16 {
			if high >= 0 && f.has(-rune(high<<4|low), 0) > 0 {
				return true
			}
		}
	case '\\':
		return strings.IndexByte("uUxX", second) >= 0 || f.fold[short(second)] == f.text[0]
	case '&':
		return second == '#' || !alphanumeric(f.text[0]) && alphanumeric(second)
	}
	return false
}

// empty reports whether m has nothing to mask.
func (m *masker) empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.values) == 0
}

// errLonger is the error of a text that is longer than its limit once it is masked.
var errLonger = errors.New("too long with the marks of secrets")

// within returns text with every secret masked, in at most limit bytes: text itself if it
// has none. The error is that of ctx, or errLonger: marks can be longer than values.
func (m *masker) within(ctx context.Context, text []byte, limit int64) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.values) == 0 {
		return text, nil
	}

	var out []byte
	done := 0 // bytes of text that are in out
	for {
		start, end, f := m.find(ctx, text, done)
		if f == nil {
			break
		}
		out = append(append(out, text[done:start]...), f.mark...)
		if done = end; int64(len(out)) > limit {
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

// bytes is within without bounds.
func (m *masker) bytes(text []byte) []byte {
	out, _ := m.within(context.Background(), text, math.MaxInt64)
	return out
}

// string is bytes for a string.
func (m *masker) string(text string) string {
	if m.empty() {
		return text
	}
	return string(m.bytes([]byte(text)))
}

// has reports whether a text has a secret.
func (m *masker) has(text string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, _, f := m.find(context.Background(), []byte(text), 0)
	return f != nil
}

// header masks values, and removes fields whose name has a secret.
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

// find returns the first secret after a place of a text; f is nil if there is none, or ctx
// has ended.
func (m *masker) find(ctx context.Context, text []byte, from int) (start, end int, f *form) {
	const piece = 64 << 10 // bytes before the context is checked again
	for at := from; at < len(text)-1 && ctx.Err() == nil; at += piece {
		if start, end, f = m.findIn(text, from, at, min(at+piece, len(text)-1)); f != nil {
			break
		}
	}
	return start, end, f
}

// findIn is find for a secret that begins between two places of a text.
func (m *masker) findIn(text []byte, from, begin, until int) (start, end int, f *form) {
	rest := text[begin : until+1]
	for at := 1; at < len(rest); at++ {
		pair := uint(rest[at-1])<<8 | uint(rest[at])
		if m.begins[pair>>6&1023]>>(pair&63)&1 == 0 {
			continue
		}
		start = begin + at - 1
		if f, end = m.longest(text, start); f == nil {
			continue
		}
		if f.shared[0] && start > from && isBase64(text[start-1]) && !endsEscape(text[from:start]) {
			start--
		}
		if f.shared[1] && end < len(text) && isBase64(text[end]) {
			end++
			for n := 0; n < 2 && end < len(text) && text[end] == '='; n++ {
				end++
			}
		}
		return start, end, f
	}
	return 0, 0, nil
}

// longest returns the longest form that begins at a place of a text.
func (m *masker) longest(text []byte, start int) (found *form, end int) {
	state, fresh, spaces := &m.nodes[0], true, 0
	for at := start; ; {
		if fresh && len(state.forms) > 0 {
			found, end = state.longest(text, start, found, end)
		}
		if at == len(text) {
			return found, end
		}

		c, size := text[at], 1
		var next *node
		if isEscape(c) { // which is not in the trie
			next, size = m.unescaped(state, text[at:])
		} else {
			next = m.child(state, c)
		}
		if fresh = next != nil; fresh {
			state, at = next, at+size
			continue
		}

		// White space may be between two lines of base64.
		if !isSpace(c) && !isEscape(c) || size == 0 || at == start || spaces == maxSpaces {
			return found, end
		}
		at, spaces = at+size, spaces+1
	}
}

// longest returns the longest form of a node that begins at a place of a text, or found if
// that is longer.
func (n *node) longest(text []byte, start int, found *form, end int) (*form, int) {
	for _, f := range n.forms {
		if e := f.match(text, start); e > end {
			found, end = f, e
		}
	}
	return found, end
}

// unescaped follows the trie by the escape that a text begins with. A nil node with a size
// is that of white space.
func (m *masker) unescaped(from *node, text []byte) (next *node, size int) {
	r, size := unescape(text)
	switch {
	case size == 0:
		return nil, 0
	case r < utf8.RuneSelf:
		b := byte(max(r, -r))
		if next = m.child(from, b); next != nil || isSpace(b) {
			return next, size
		}
		if r > -utf8.RuneSelf {
			return nil, 0
		}
		r = -r // of Latin-1
	}
	if next = m.descend(from, r); next == nil {
		return nil, 0
	}
	return next, size
}

// descend follows the trie by a character of several bytes, or by those that are in it.
func (m *masker) descend(from *node, r rune) *node {
	var char [utf8.UTFMax]byte
	for _, b := range char[:utf8.EncodeRune(char[:], r)] {
		next := m.child(from, b)
		if next == nil && len(from.forms) == 0 {
			return nil
		}
		if next == nil {
			break
		}
		from = next
	}
	return from
}

func (m *masker) child(from *node, c byte) *node {
	if i := from.next[foldBoth[c]]; i != 0 {
		return &m.nodes[i]
	}
	return nil
}

// match returns where a form that begins at a place of a text ends, or 0.
func (f *form) match(text []byte, at int) (end int) {
	k := 0
	for ; k < len(f.text) && at < len(text) && f.fold[text[at]] == f.text[k] && !isEscape(text[at]); k++ {
		at++
	}

	end, other := f.matchAs(text, at, k, `%\&`)
	for i := 0; end == 0 && other && i < len(readings); i++ {
		end, _ = f.matchAs(text, at, k, readings[i])
	}
	return end
}

// readings are the escapes of one language, or of none: to it, a value that has what looks
// like those of another has none.
var readings = []string{"%", `\`, "&", ""}

// matchAs is match from byte k of a form on, with some escapes. Other reports that one of them
// could be read as none.
func (f *form) matchAs(text []byte, at, k int, escapes string) (end int, other bool) {
	for spaces := 0; k < len(f.text); {
		if at >= len(text) {
			return f.cut(text, k), other
		}

		c := text[at]
		plain := f.fold[c] == f.text[k]
		if isEscape(c) && strings.IndexByte(escapes, c) >= 0 {
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

// maxSpaces is how many characters may be between two lines of base64.
const maxSpaces = 16

// cut returns the end of a text that ends after k bytes of a form, if those are enough.
func (f *form) cut(text []byte, k int) int {
	if k >= f.least {
		return len(text)
	}
	return 0
}

// has returns how many bytes of a form, from byte k on, are what unescape returned, or 0.
func (f *form) has(r rune, k int) int {
	if r < utf8.RuneSelf {
		if f.fold[byte(max(r, -r))] == f.text[k] {
			return 1
		}
		if r > -utf8.RuneSelf {
			return 0
		}
		r = -r // of Latin-1
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
