package background

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A cursor is a place in the output of a run: an attempt, and an offset in its
// log. Its text form is "attempt:offset".
type cursor struct {
	attempt int
	offset  int64
}

func (c cursor) String() string { return fmt.Sprintf("%d:%d", c.attempt, c.offset) }

// parseCursor is strict: it accepts what String makes, and nothing else.
func parseCursor(s string) (cursor, error) {
	a, o, ok := strings.Cut(s, ":")
	attempt, errA := strconv.Atoi(a)
	offset, errO := strconv.ParseInt(o, 10, 64)
	c := cursor{attempt, offset}
	if !ok || errA != nil || errO != nil || attempt < 0 || offset < 0 || c.String() != s {
		return cursor{}, &FieldError{"cursor", fmt.Sprintf("%q is none; give the cursor of an earlier answer, or none for the latest output", clip(s, 40))}
	}
	return c, nil
}

// window is how many bytes have to be read to show chars characters.
func window(chars int) int { return utf8.UTFMax*chars + maxEscape + utf8.UTFMax }

// take returns how many bytes of data to show: those of up to chars
// characters, escape sequences not counted. If more may follow data, a
// character or an escape sequence that is not whole is left for the next time.
func take(data []byte, chars int, more bool) int {
	i := 0
	for n := 0; i < len(data); {
		if data[i] == '\x1b' {
			size, whole := escape(data[i:])
			if !whole && more {
				break
			}
			i += size
			continue
		}
		if n++; n > chars {
			break
		}
		if more && !utf8.FullRune(data[i:]) {
			break
		}
		_, size := utf8.DecodeRune(data[i:])
		i += size
	}
	return i
}

// lastLines returns where to begin to show the last chars characters of data,
// at the beginning of a line if one begins there. cut says that data itself is
// not the beginning of the log.
func lastLines(data []byte, chars int, cut bool) int {
	start := len(data)
	for n := 0; n < chars && start > 0; n++ {
		_, size := utf8.DecodeLastRune(data[:start])
		start -= size
	}
	if start == 0 && !cut || start > 0 && data[start-1] == '\n' {
		return start
	}
	if i := bytes.IndexByte(data[start:], '\n'); i >= 0 && start+i+1 < len(data) {
		return start + i + 1
	}
	return start
}

// tailFunc reads a log as [Sink.Tail] does.
type tailFunc func(offset int64, max int) (Chunk, error)

// readOutput shows up to chars characters of a run's log: from the cursor on,
// or the last ones if after is nil. It returns nil if chars is negative.
func readOutput(run Run, tail tailFunc, after *cursor, chars int) (*OutputReport, error) {
	if chars < 0 {
		return nil, nil
	}
	report := &OutputReport{LastOutputAt: run.LastOutputAt}
	from := int64(-window(chars))
	if after != nil {
		from = after.offset
		if after.attempt != run.Attempt {
			from = 0
			report.Note = fmt.Sprintf("attempt %d has begun; its output starts here", run.Attempt)
		}
	}
	chunk, err := tail(from, window(chars))
	if err != nil {
		return nil, err
	}
	data, start := chunk.Data, 0
	if after == nil {
		start = lastLines(data, chars, chunk.Offset > 0)
		from = 0
	}
	atEnd := chunk.Offset+int64(len(data)) == chunk.End
	more := len(data) == window(chars) || atEnd && !run.Status.Terminal()
	used := start + take(data[start:], chars, more)
	next := chunk.Offset + int64(used)
	report.Text = Clean(data[start:used])
	report.Cursor = cursor{run.Attempt, next}.String()
	report.OmittedBytes = max(0, chunk.Offset+int64(start)-from)
	report.PendingBytes = chunk.End - next
	return report, nil
}
