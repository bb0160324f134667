package egress

import (
	"encoding/base64"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// encoding is a way to write a value.
type encoding struct {
	fold    *folding // folding of the text that is compared
	least   int      // bytes of a form that are masked even if cut off at the end of a response
	lines   bool     // whether a form may be broken into lines
	buckets uint64   // bits of its buckets
}

const (
	asText = iota
	asHex
	asBase64
)

// minPrefix is how many bytes of a secret are masked even if cut off at the end of a
// response.
const minPrefix = 8

// encodings lists the encodings. Texts are compared regardless of letter case, and with +
// as a space, as in a query; base64 in the URL alphabet is compared as in the standard
// one.
var encodings = [...]encoding{
	asText:   {fold: foldText, least: minPrefix, buckets: 0b00000111},
	asHex:    {fold: foldText, least: 2 * minPrefix, buckets: 0b00001000},
	asBase64: {fold: newFolding("-_", "+/"), least: base64.RawStdEncoding.EncodedLen(minPrefix), lines: true, buckets: 0b11110000},
}

// inBucket lists the encodings by bucket.
var inBucket = func() (all [buckets]*encoding) {
	for i := range encodings {
		for b := encodings[i].buckets; b != 0; b &= b - 1 {
			all[bits.TrailingZeros64(b)] = &encodings[i]
		}
	}
	return all
}()

var foldText = newFolding("ABCDEFGHIJKLMNOPQRSTUVWXYZ+", "abcdefghijklmnopqrstuvwxyz ")

// bucket returns the bucket of a form. The last byte that a pass looks for decides, because many
// secrets begin alike.
func (e *encoding) bucket(form []byte) int {
	last := int(form[min(len(form), firstBytes)-1])
	return bits.TrailingZeros64(e.buckets) + last%bits.OnesCount64(e.buckets)
}

// folding maps bytes that are compared as equal to one of them.
type folding struct {
	to   [256]byte
	from [256][]byte
}

// newFolding maps each byte of from to the byte of to at the same index.
func newFolding(from, to string) *folding {
	f := &folding{}
	for c := range f.to {
		f.to[c] = byte(c)
	}
	for i := range len(from) {
		f.to[from[i]] = to[i]
	}
	for c, folded := range f.to {
		f.from[folded] = append(f.from[folded], byte(c))
	}
	return f
}

// form is a secret in one encoding.
type form struct {
	mark   string
	shared [2]bool // whether the characters before and after it also contain bits of the value
}

// node is a node of a radix tree. It holds the forms of one bucket that begin with the
// bytes on the way to it.
type node struct {
	depth    int         // bytes before the label
	label    []byte      // bytes that all of these forms have next
	index    *[256]uint8 // by the byte after the label: the number of the child from 1, or 0
	children []*node
	form     *form // the form that ends after the label, or nil
	any      *form // one of the forms
}

// insert adds a folded form unless the tree contains it.
func (n *node) insert(text []byte, f *form) bool {
	if n.any == nil { // an empty tree
		n.label, n.form, n.any = text, f, f
		return true
	}
	same := 0
	for same < min(len(n.label), len(text)) && n.label[same] == text[same] {
		same++
	}
	if same < len(n.label) {
		rest, next := *n, n.label[same]
		rest.depth, rest.label = n.depth+same+1, n.label[same+1:]
		*n = node{depth: n.depth, label: n.label[:same], any: n.any}
		n.add(next, &rest)
	}

	switch {
	case same < len(text):
		next, rest := text[same], text[same+1:]
		if child := n.child(next); child != nil {
			return child.insert(rest, f)
		}
		n.add(next, &node{depth: n.depth + same + 1, label: rest, form: f, any: f})
	case n.form != nil:
		return false
	default:
		n.form = f
	}
	return true
}

func (n *node) add(c byte, child *node) {
	if n.index == nil {
		n.index = new([256]uint8)
	}
	n.children = append(n.children, child)
	n.index[c] = uint8(len(n.children))
}

func (n *node) child(c byte) *node {
	if n.index == nil || n.index[c] == 0 {
		return nil
	}
	return n.children[n.index[c]-1]
}

// prefix is what a text and some forms have in common.
type prefix struct {
	*node       // nil if no form has it in common
	matched int // bytes of the node's label
	spaces  int // characters between two lines
}

// next returns p with one more byte.
func (p prefix) next(e *encoding, c byte) prefix {
	folded := e.fold.to[c]
	if p.matched < len(p.label) {
		if p.label[p.matched] == folded {
			return prefix{node: p.node, matched: p.matched + 1}
		}
	} else if child := p.child(folded); child != nil {
		return prefix{node: child}
	}
	if e.lines && kinds[c] == space && p.depth+p.matched > 0 && p.spaces < maxSpaces {
		p.spaces++
		return p
	}
	return prefix{}
}

// after returns p with more bytes.
func (p prefix) after(e *encoding, chars []byte) prefix {
	for i := 0; i < len(chars) && p.node != nil; i++ {
		p = p.next(e, chars[i])
	}
	return p
}

// search looks for the forms of a masker in a text.
type search struct {
	*masker
	text []byte

	begin  int            // start of the piece
	states states         // states of the piece
	starts [piece]uint16  // where forms may begin in the piece, from the last place to the first
	read   [piece]reading // results of unescape at bytes that could begin an escape
	known  int            // end of the part of the text that read covers
	done   int            // end of the last secret

	// budget is how many steps may still be taken to compare forms. Only a text that repeats
	// the beginnings of secrets over and over uses it up. After that, no part of the text is
	// compared twice: a beginning of minPrefix bytes or more is masked, and each escape is read
	// in one way.
	budget int

	found *form // longest form at a position
	end   int
}

// reading is a result of unescape, with characters for bytes of ASCII. If there is no escape, it
// is the byte itself, of size 1.
type reading struct {
	r    rune
	size int32
}

// stepsPerByte limits the steps of a search, in relation to the text. A text that consists of
// secrets takes one or two.
const stepsPerByte = 16

func (m *masker) search(text []byte) *search {
	return &search{masker: m, text: text, budget: stepsPerByte * len(text)}
}

// maxSpaces is how many characters may separate two lines of base64.
const maxSpaces = 16

// at looks for the longest form at a position with that state.
func (s *search) at(start int, state uint64) bool {
	s.found, s.end = nil, 0
	for open := ^state & isFirst; open != 0; open &= open - 1 {
		bucket := bits.TrailingZeros64(open)
		found, end := s.found, s.end
		s.end = 0 // without a budget, a longer form in another bucket is found too
		s.walk(inBucket[bucket], prefix{node: &s.trees[bucket]}, start)
		if s.end <= end {
			s.found, s.end = found, end
		}
	}
	return s.found != nil
}

// walk compares a text with the forms that begin with p.
func (s *search) walk(e *encoding, p prefix, at int) {
	for s.budget > 0 || at >= s.end {
		s.budget--
		if p.matched < len(p.label) {
			if n, size := s.plain(e, p.label[p.matched:], at); n > 0 {
				p.matched, p.spaces, at = p.matched+n, 0, at+size
				s.budget -= n
			}
		}
		if p.matched == len(p.label) && p.spaces == 0 {
			if p.form != nil && at >= s.end {
				s.found, s.end = p.form, at
			}
			if p.index == nil {
				return
			}
		}
		if at == len(s.text) {
			s.cut(e, p, at)
			return
		}

		c := s.text[at]
		next, size := prefix{}, 1
		if kinds[c] != plain || p.matched == len(p.label) {
			next = p.next(e, c)
		}
		if kinds[c] > space {
			next, size = s.escape(e, p, next, at)
		}
		if next.node == nil {
			if s.budget <= 0 {
				s.cut(e, p, at)
			}
			return
		}
		p, at = next, at+size
	}
}

// plain returns how many bytes of a label a text begins with, up to an escape that can be read in
// several ways, and their size in the text.
func (s *search) plain(e *encoding, label []byte, at int) (n, size int) {
	from, text, fold := at, s.text, &e.fold.to
	for ; n < len(label) && at < len(text); n++ {
		c, size := text[at], 1
		if kinds[c] > space {
			if at >= s.known {
				break
			}
			switch read := s.read[at-s.begin]; {
			case read.size == 1, c == label[n] && read.r != rune(c): // only the byte itself can match
			case c == label[n], read.r >= utf8.RuneSelf, read.r < 0 && label[n]&^1 == 0xc2: // Latin-1 in UTF-8
				return n, at - from
			default:
				c, size = byte(max(read.r, -read.r)), int(read.size)
			}
		}
		if fold[c] != label[n] {
			break
		}
		at += size
	}
	return n, at - from
}

// escape returns what follows p after what may be an escape, and its size. next is what follows
// if it is not. If there are several ways to read it, escape follows the others too.
func (s *search) escape(e *encoding, p, next prefix, at int) (prefix, int) {
	if text := s.text[at:]; len(text) < maxEscape && beginsEscape.Match(text) {
		s.cut(e, p, len(s.text))
	}
	r, size := s.unescape(at)
	if size <= 1 {
		return next, 1
	}

	var asChar, asByte prefix // a Latin-1 byte can be both
	if -utf8.RuneSelf < r && r < utf8.RuneSelf {
		r = max(r, -r)
	} else {
		var char [utf8.UTFMax]byte
		asChar = p.after(e, char[:utf8.EncodeRune(char[:], max(r, -r))])
	}
	if r < utf8.RuneSelf {
		asByte = p.next(e, byte(max(r, -r)))
	}

	width := 1
	if asChar.node != nil {
		s.fork(e, next, at+width)
		next, width = asChar, size
	}
	if asByte.node != nil {
		s.fork(e, next, at+width)
		next, width = asByte, size
	}
	return next, width
}

// unescape is like the function unescape, but at a position. A size of 1 also means that there is
// no escape.
func (s *search) unescape(at int) (r rune, size int) {
	if at < s.known {
		read := s.read[at-s.begin]
		return read.r, int(read.size)
	}
	return unescape(s.text[at:])
}

// fork follows another way to read a text, if there is one.
func (s *search) fork(e *encoding, p prefix, at int) {
	if p.node != nil && s.budget > 0 {
		s.walk(e, p, at)
	}
}

// cut masks a text up to end after the beginning of a form, if that is enough to mask.
func (s *search) cut(e *encoding, p prefix, end int) {
	if p.depth+p.matched >= e.least && end > s.end {
		s.found, s.end = p.any, end
	}
}

// neighbors extends a match by adjacent characters that also contain bits of the value, but
// not before from.
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

func isBase64(c byte) bool { return alphanumeric(c) || strings.IndexByte("+/-_", c) >= 0 }
