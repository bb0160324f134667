package output

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A Cursor is a position in the output of a run. Its text form is "attempt:offset".
type Cursor struct {
	Attempt int
	Offset  int64 // offset in the log of the attempt
}

func (c Cursor) String() string { return fmt.Sprintf("%d:%d", c.Attempt, c.Offset) }

// ParseCursor parses the text form of a cursor. It accepts only what String returns.
func ParseCursor(s string) (Cursor, error) {
	a, o, ok := strings.Cut(s, ":")
	attempt, errA := strconv.Atoi(a)
	offset, errO := strconv.ParseInt(o, 10, 64)

	c := Cursor{attempt, offset}
	if !ok || errA != nil || errO != nil || attempt < 0 || offset < 0 || c.String() != s {
		return Cursor{}, errors.New("invalid cursor: use that of an earlier answer, or none for the latest output")
	}
	return c, nil
}

// An Excerpt is a part of a run's output, cleaned by [Clean].
type Excerpt struct {
	Text         string    `json:"text"`
	Cursor       string    `json:"cursor"`                  // cursor for the next check, to get the output after Text
	OmittedBytes int64     `json:"omitted_bytes,omitempty"` // bytes left out before Text, since the request's cursor or the beginning
	PendingBytes int64     `json:"pending_bytes,omitempty"` // bytes after Text, not shown yet
	LastOutputAt time.Time `json:"last_output_at,omitzero"`
	Note         string    `json:"note,omitempty"`
}

// window returns how many bytes must be read to show chars characters.
func window(chars int) int { return utf8.UTFMax*chars + maxEscape + utf8.UTFMax }

// take returns how many bytes of data to show: up to chars characters, without
// counting escape sequences. If more may follow data, an incomplete character
// or escape sequence is left for the next time.
func take(data []byte, chars int, more bool) int {
	i, n := 0, 0
	for i < len(data) {
		if data[i] == '\x1b' {
			if more && isPartial(data[i:]) {
				break
			}
			i += escape(data[i:])
			continue
		}

		n++
		if n > chars || more && !utf8.FullRune(data[i:]) {
			break
		}
		_, size := utf8.DecodeRune(data[i:])
		i += size
	}

	return i
}

// lastLines returns where the last chars characters of data begin, at the beginning of
// a line if one begins among them. cut says that data does not begin at the beginning
// of the log.
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

// Read returns up to chars characters of a run's log, beginning at the cursor after, or
// the last characters if after is nil. The function read has to read the log as
// [Sink.Tail] does. If chars is negative, Read returns nil.
func Read(run engine.Run, read func(offset int64, max int) (engine.Chunk, error), after *Cursor, chars int) (*Excerpt, error) {
	if chars < 0 {
		return nil, nil
	}

	excerpt := &Excerpt{LastOutputAt: run.LastOutputAt}
	from := int64(-window(chars))
	if after != nil {
		from = after.Offset
		if after.Attempt != run.Attempt {
			from = 0
			excerpt.Note = fmt.Sprintf("attempt %d has begun; its output starts here", run.Attempt)
		}
	}

	chunk, err := read(from, window(chars))
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

	excerpt.Text = Clean(data[start:used])
	excerpt.Cursor = Cursor{run.Attempt, next}.String()
	excerpt.OmittedBytes = max(0, chunk.Offset+int64(start)-from)
	excerpt.PendingBytes = chunk.End - next
	return excerpt, nil
}
