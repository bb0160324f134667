// Package output keeps a bounded part of a run's output, and renders it.
package output

import (
	"fmt"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Buffer keeps the first and the last bytes of a stream and counts the rest. It
// is not safe for concurrent use.
//
// The stream is [0,total). The buffer keeps its beginning in head, and its end in
// the last tailCap bytes of tail.
type Buffer struct {
	headCap, tailCap int
	head, tail       []byte
	sealed           bool // nothing more goes to head
	total            int64
}

// NewBuffer returns a buffer that keeps up to capacity bytes, three quarters of them
// from the beginning of the stream. capacity must be positive.
func NewBuffer(capacity int) Buffer {
	headCap := capacity/4*3 + capacity%4*3/4
	return Buffer{headCap: headCap, tailCap: capacity - headCap}
}

// Append adds p to the stream.
func (b *Buffer) Append(p []byte) {
	b.total += int64(len(p))
	if !b.sealed {
		n := min(len(p), b.headCap-len(b.head))
		b.head, p = append(b.head, p[:n]...), p[n:]
		b.sealed = len(b.head) == b.headCap
	}

	p = p[max(0, len(p)-b.tailCap):]
	if len(b.tail)+len(p) > 2*b.tailCap {
		keep := min(len(b.tail), b.tailCap-len(p))
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-keep:]...)
	}
	b.tail = append(b.tail, p...)
}

// AppendAt adds p, which begins at the given offset in the stream. If offset is after
// the end of the stream so far, the bytes between are treated as dropped; bytes of p
// before that end are ignored.
func (b *Buffer) AppendAt(offset int64, p []byte) {
	if offset > b.total {
		b.sealed, b.tail, b.total = true, b.tail[:0], offset
	}
	b.Append(p[min(int64(len(p)), b.total-offset):])
}

// Cut makes the stream end at n, and forgets everything after it. Bytes dropped
// before n stay dropped.
func (b *Buffer) Cut(n int64) {
	head, kept := int64(len(b.head)), b.kept()
	begin := b.total - int64(len(kept))

	switch {
	case n > b.total:
		b.AppendAt(n, nil)
		return
	case n <= head:
		b.head, b.tail = b.head[:n], nil
		b.sealed = len(b.head) == b.headCap
	case n > begin:
		b.tail = kept[:n-begin]
	default:
		b.tail, b.sealed = nil, true
	}
	b.total = n
}

// kept returns the valid part of tail.
func (b *Buffer) kept() []byte { return b.tail[max(0, len(b.tail)-b.tailCap):] }

// Output returns everything that is kept.
func (b *Buffer) Output() Output {
	head, tail := b.bounds()
	if head == tail {
		return Output{Head: b.slice(0, b.total)}
	}
	return Output{Head: b.slice(0, head), Tail: b.slice(tail, b.total), Omitted: tail - head}
}

// bounds returns where the head ends and where the tail begins. They are equal
// if nothing was dropped. Otherwise neither splits a UTF-8 character.
func (b *Buffer) bounds() (head, tail int64) {
	kept := b.kept()
	head, tail = int64(len(b.head)), b.total-int64(len(kept))
	if head == tail {
		return head, tail
	}

	for _, c := range kept[:min(len(kept), utf8.UTFMax-1)] {
		if utf8.RuneStart(c) {
			break
		}
		tail++
	}
	return head - int64(PartialRune(b.head)), tail
}

// Read returns up to limit bytes from offset on, or, if offset is negative, starting
// that many bytes before the end. It never reads across the gap of dropped bytes: an
// offset inside the gap, or a negative one that points before it, reads from the tail.
func (b *Buffer) Read(offset int64, limit int) engine.Chunk {
	head, tail := b.bounds()
	end, last := b.total, offset < 0
	if last {
		offset = max(0, b.total+offset)
	}
	if head < tail && offset < tail {
		if offset < head && !last {
			end = head
		} else {
			offset = tail
		}
	}

	offset = min(offset, b.total)
	end = min(end, offset+int64(max(0, limit)))
	return engine.Chunk{Offset: offset, Data: b.slice(offset, end), End: b.total}
}

// slice returns a copy of the bytes [from,to) of the stream, which must be kept ones.
func (b *Buffer) slice(from, to int64) []byte {
	out := make([]byte, 0, to-from)

	if h := int64(len(b.head)); from < h {
		out = append(out, b.head[from:min(to, h)]...)
		from = min(to, h)
	}
	if from < to {
		kept := b.kept()
		tail := b.total - int64(len(kept))
		out = append(out, kept[from-tail:to-tail]...)
	}
	return out
}

// Total returns the length of the stream so far, dropped bytes included.
func (b *Buffer) Total() int64 { return b.total }

// Size returns how many bytes are kept.
func (b *Buffer) Size() int64 { return int64(len(b.head) + len(b.kept())) }

// An Output is the kept part of a log.
type Output struct {
	Head, Tail []byte
	Omitted    int64 // number of dropped bytes between Head and Tail
}

// String returns the raw output. A line in place of dropped bytes says how many
// are missing.
func (o Output) String() string {
	if o.Omitted == 0 {
		return string(o.Head) + string(o.Tail)
	}
	return fmt.Sprintf("%s\n[system] %d bytes omitted\n%s", o.Head, o.Omitted, o.Tail)
}

// PartialRune returns how many bytes at the end of p are the beginning of
// an incomplete UTF-8 character.
func PartialRune(p []byte) int {
	for k := 1; k <= min(utf8.UTFMax-1, len(p)); k++ {
		if last := p[len(p)-k:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return k
			}
			return 0
		}
	}
	return 0
}
