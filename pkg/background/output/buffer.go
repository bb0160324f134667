// Package output keeps a bounded part of what a run writes, and shows it.
package output

import (
	"fmt"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Buffer keeps the first and the last bytes of a stream and counts the rest,
// in the image of os/exec's prefixSuffixSaver. The tail is a ring. It is not
// safe for concurrent use.
//
// The stream is [0,total). Kept are [0,len(head)) and [total-n,total).
type Buffer struct {
	headCap, tailCap int
	head             []byte
	sealed           bool   // nothing more goes to head
	ring             []byte // allocated when the head is full
	start, n         int    // the tail is ring[start:start+n], modulo its length
	total            int64
}

// NewBuffer returns a buffer that keeps capacity bytes, three quarters of them
// at the head. capacity must be positive.
func NewBuffer(capacity int) Buffer {
	headCap := capacity/4*3 + capacity%4*3/4
	return Buffer{headCap: headCap, tailCap: capacity - headCap}
}

// Append adds p to the stream.
func (b *Buffer) Append(p []byte) {
	if !b.sealed {
		k := min(len(p), b.headCap-len(b.head))
		b.head = append(b.head, p[:k]...)
		b.total += int64(k)
		b.sealed = len(b.head) == b.headCap
		p = p[k:]
	}
	if len(p) == 0 {
		return
	}
	b.total += int64(len(p))
	if b.ring == nil {
		b.ring = make([]byte, b.tailCap)
	}
	if len(p) >= b.tailCap {
		copy(b.ring, p[len(p)-b.tailCap:])
		b.start, b.n = 0, b.tailCap
		return
	}
	at := (b.start + b.n) % b.tailCap
	k := copy(b.ring[at:], p)
	copy(b.ring, p[k:])
	b.n += len(p)
	if over := b.n - b.tailCap; over > 0 {
		b.start, b.n = (b.start+over)%b.tailCap, b.tailCap
	}
}

// Output returns all that is kept.
func (b *Buffer) Output() Output {
	head, tail := b.bounds()
	if head == tail {
		return Output{Head: b.slice(0, b.total)}
	}
	return Output{Head: b.slice(0, head), Tail: b.slice(tail, b.total), Omitted: tail - head}
}

// AppendAt writes p, which begins at offset of the stream: what lies between
// the end of the buffer and offset counts as dropped, what p has before that
// end is ignored.
func (b *Buffer) AppendAt(offset int64, p []byte) {
	if skipped := offset - b.total; skipped > 0 {
		b.sealed = true
		b.start, b.n = 0, 0
		b.total = offset
	} else {
		p = p[min(int64(len(p)), -skipped):]
	}
	b.Append(p)
}

// bounds returns where the head ends and where the tail begins. They are equal
// if nothing was dropped; otherwise neither cuts a character of UTF-8.
func (b *Buffer) bounds() (head, tail int64) {
	head, tail = int64(len(b.head)), b.total-int64(b.n)
	if head == tail {
		return head, tail
	}
	head -= int64(PartialRune(b.head))
	for range min(b.n, utf8.UTFMax-1) {
		if utf8.RuneStart(b.ring[(b.start+int(tail-b.total)+b.n)%b.tailCap]) {
			break
		}
		tail++
	}
	return head, tail
}

// Read returns up to limit bytes from offset on, or, if offset is negative,
// from that many bytes before the end. It never reads across the gap: from
// inside the gap it continues at the tail, and so it does from before the gap if
// offset is negative.
func (b *Buffer) Read(offset int64, limit int) engine.Chunk {
	head, tail := b.bounds()
	gap := head < tail
	if offset < 0 {
		offset = max(0, b.total+offset)
		if gap {
			offset = max(offset, tail)
		}
	}
	offset = min(offset, b.total)
	end := b.total
	if gap && offset < head {
		end = head
	} else if gap && offset < tail {
		offset = tail
	}
	end = min(end, offset+int64(max(0, limit)))
	return engine.Chunk{Offset: offset, Data: b.slice(offset, end), End: b.total}
}

// slice returns a copy of [from,to), which must be kept.
func (b *Buffer) slice(from, to int64) []byte {
	out := make([]byte, 0, to-from)
	if h := int64(len(b.head)); from < h {
		out = append(out, b.head[from:min(to, h)]...)
		from = min(to, h)
	}
	if from == to {
		return out
	}
	at := (b.start + int(from-(b.total-int64(b.n)))) % b.tailCap
	first := b.ring[at:min(len(b.ring), at+int(to-from))]
	out = append(out, first...)
	return append(out, b.ring[:int(to-from)-len(first)]...)
}

// Total returns the length of the stream so far, dropped bytes included.
func (b *Buffer) Total() int64 { return b.total }

// Size returns how many bytes of memory the buffer takes.
func (b *Buffer) Size() int64 { return int64(len(b.head) + len(b.ring)) }

// An Output is what is kept of a log.
type Output struct {
	Head, Tail []byte
	Omitted    int64 // bytes between Head and Tail
}

// String returns the raw output, with a line that says how many bytes are
// missing where some are.
func (o Output) String() string {
	if o.Omitted == 0 {
		return string(o.Head) + string(o.Tail)
	}
	return fmt.Sprintf("%s\n[system] %d bytes omitted\n%s", o.Head, o.Omitted, o.Tail)
}

// PartialRune returns how many bytes at the end of p are the beginning of a
// character of UTF-8 that is not whole.
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
