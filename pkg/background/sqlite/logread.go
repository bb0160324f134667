package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background"
)

// isLog reports whether a file of a run's folder is a part of its log.
func isLog(name string) bool {
	return name == background.OutputLog || name == outputNew || strings.HasPrefix(name, tailPrefix)
}

// findLog returns the log of an attempt whose process is gone, as far as it
// had been appended.
func (e *Engine) findLog(run background.Run) (*logFile, error) {
	l := e.newLog(run)
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	inHead := int64(math.MaxInt64)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if entry.Name() == background.OutputLog {
			l.head = info.Size()
		} else if head, off, ok := parseSegment(entry.Name()); ok && info.Size() > 0 && head <= off {
			inHead = min(inHead, head)
			l.segs = append(l.segs, segment{head, off, info.Size()})
		}
	}
	l.head = min(l.head, inHead)
	l.end = l.head
	if len(l.segs) > 0 {
		l.sealed = true
		l.segs = contiguous(l.segs)
		last := l.segs[len(l.segs)-1]
		l.end = last.off + last.n
	}
	l.rest = logSize(l.dir) - l.size()
	return l, nil
}

// parseSegment reads the name of a segment.
func parseSegment(name string) (head, off int64, ok bool) {
	numbers, ok := strings.CutPrefix(name, tailPrefix)
	if !ok {
		return 0, 0, false
	}
	h, o, _ := strings.Cut(numbers, ".")
	head, err := strconv.ParseInt(h, 10, 64)
	off, err2 := strconv.ParseInt(o, 10, 64)
	ok = err == nil && err2 == nil && 0 <= head && 0 <= off && off <= maxStream && name == segmentName(head, off)
	return head, off, ok
}

func segmentName(head, off int64) string { return fmt.Sprintf("%s%d.%d", tailPrefix, head, off) }

// contiguous returns those of the segments, in order, that lead to the last
// one without a gap.
func contiguous(segs []segment) []segment {
	slices.SortFunc(segs, func(a, b segment) int { return int(min(1, max(-1, a.off-b.off))) })
	i := len(segs) - 1
	for i > 0 && segs[i-1].off+segs[i-1].n == segs[i].off {
		i--
	}
	return segs[i:]
}

// A piece is a part of the stream in a file.
type piece struct {
	path   string
	off, n int64 // in the stream
	at     int64 // of its first byte in the file
}

// A layout says where the bytes of a log are. The stream is [0,end); kept are
// [0,head) and [tail,end). head and tail are equal if nothing is missing.
type layout struct {
	pieces          []piece
	head, tail, end int64
}

// layout returns where the log is now. Neither end cuts a character of UTF-8
// where bytes are missing. A segment may be gone when it is read: then ask
// again.
func (l *logFile) layout() (layout, error) {
	lay := l.untrimmed()
	if lay.head == lay.tail {
		return lay, nil
	}
	return lay, lay.trim()
}

// untrimmed returns where the log is now, to the byte.
func (l *logFile) untrimmed() layout {
	l.mu.Lock()
	defer l.mu.Unlock()
	lay := layout{head: l.head, tail: l.end, end: l.end}
	if l.head > 0 {
		lay.pieces = append(lay.pieces, piece{path: filepath.Join(l.dir, background.OutputLog), n: l.head})
	}
	if len(l.segs) > 0 {
		lay.tail = l.segs[0].off
	}
	for _, s := range l.segs {
		lay.pieces = append(lay.pieces, piece{path: l.path(s), off: s.off, n: s.n})
	}
	return lay
}

// trim moves the ends of a gap to whole characters.
func (l *layout) trim() error {
	last, err := l.bytes(max(0, l.head-utf8.UTFMax+1), l.head)
	if err != nil {
		return err
	}
	l.head -= int64(background.PartialRune(last))
	first, err := l.bytes(l.tail, min(l.end, l.tail+utf8.UTFMax-1))
	if err != nil {
		return err
	}
	for _, b := range first {
		if utf8.RuneStart(b) {
			break
		}
		l.tail++
	}
	return nil
}

// bytes reads [from,to) of the stream, which must be kept.
func (l *layout) bytes(from, to int64) ([]byte, error) {
	out := make([]byte, 0, max(0, to-from))
	for _, p := range l.pieces {
		a, b := max(from, p.off), min(to, p.off+p.n)
		if a >= b {
			continue
		}
		n := len(out)
		out = out[:n+int(b-a)]
		if err := readAt(p.path, out[n:], p.at+a-p.off); err != nil {
			return nil, err
		}
	}
	if int64(len(out)) < to-from {
		return nil, io.ErrUnexpectedEOF
	}
	return out, nil
}

func readAt(path string, p []byte, at int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(p, at)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// read returns up to limit bytes from offset on, as [background.Sink.Tail] does.
func (l *layout) read(offset int64, limit int) (background.Chunk, error) {
	gap := l.head < l.tail
	if offset < 0 {
		offset = max(0, l.end+offset)
		if gap {
			offset = max(offset, l.tail)
		}
	}
	offset = min(offset, l.end)
	end := l.end
	if gap && offset < l.head {
		end = l.head
	} else if gap && offset < l.tail {
		offset = l.tail
	}
	end = min(end, offset+int64(max(0, limit)))
	data, err := l.bytes(offset, end)
	return background.Chunk{Offset: offset, Data: data, End: l.end}, err
}
