package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Query selects events. Its zero value selects all events.
type Query struct {
	Kinds   []Kind
	Session string
	Tool    string
	Plugin  string
	ID      string // id of the call, run, schedule or approval
	Before  int64  // only events with numbers below this one; 0: all
	Limit   int    // maximum number of events, newest first; 0: no limit
}

func (q Query) matches(e Event) bool {
	return (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) && (q.Session == "" || q.Session == e.Session) &&
		(q.Tool == "" || q.Tool == e.Tool) && (q.Plugin == "" || q.Plugin == e.Plugin) && (q.ID == "" || q.ID == e.ID) &&
		(q.Before == 0 || e.Seq < q.Before)
}

// Read returns events of the log in a folder, newest first. It does not check the chain,
// and skips lines that are not events.
func Read(dir string, q Query) ([]Event, error) {
	found, _, err := Search(dir, q, math.MaxInt64)
	return found, err
}

// Search is like [Read], but limits how much of the log it reads: most is the approximate
// maximum, in bytes. If older events may match, next is the value of Query.Before that
// continues the search; otherwise it is 0.
func Search(dir string, q Query, most int64) (found []Event, next int64, err error) {
	files, err := filesOf(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, err
	}

	s := searching{Query: q, marks: q.marks(), left: most}
	for _, name := range slices.Backward(files) {
		first := firstOf(name)
		if q.Before > 0 && first >= q.Before {
			continue
		}

		err := s.file(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it was just removed
			return s.found, 0, err
		}
		if s.done {
			if s.last == 0 { // no line of the file could be read so far
				s.last = first
			}
			return s.found, s.last, nil
		}
	}
	return s.found, 0, nil
}

// searching is a search of a log from its end.
type searching struct {
	Query
	marks [][]byte // texts that a matching line contains
	left  int64    // bytes that may still be read
	found []Event
	last  int64 // number of the last event read
	done  bool  // the limit or the bound is reached
}

// marks returns texts that a matching line contains as it is written. With them, most
// lines need not be decoded.
func (q Query) marks() (marks [][]byte) {
	for name, value := range map[string]string{"session": q.Session, "tool": q.Tool, "plugin": q.Plugin, "id": q.ID} {
		if value == "" {
			continue
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(value) // a string: it cannot fail
		marks = append(marks, []byte(`"`+name+`":`+strings.TrimSuffix(b.String(), "\n")))
	}
	if len(q.Kinds) == 1 {
		marks = append(marks, []byte(`"kind":"`+string(q.Kinds[0])+`"`))
	}
	return marks
}

// file searches one file.
func (s *searching) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}

	end := info.Size()
	if s.Before > 0 {
		end = endBefore(f, end, s.Before)
	}
	return backward(f, end, s.line)
}

// line searches a line, and reports whether the search continues.
func (s *searching) line(line []byte) bool {
	seq := numberOf(line)
	if s.Before > 0 && seq >= s.Before {
		return true
	}
	s.left -= int64(len(line)) + 1
	if seq > 0 {
		s.last = seq
	}

	if !slices.ContainsFunc(s.marks, func(mark []byte) bool { return !bytes.Contains(line, mark) }) {
		if e, err := decode(line); err == nil && s.matches(e) {
			s.found = append(s.found, e)
		}
	}
	s.done = s.left <= 0 || s.Limit > 0 && len(s.found) >= s.Limit
	return !s.done
}

// numberOf returns the number at the beginning of a line; 0 without one.
func numberOf(line []byte) (seq int64) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if i := bytes.IndexByte(digits[:min(len(digits), 20)], ','); ok && i >= 0 {
		seq, _ = strconv.ParseInt(string(digits[:i]), 10, 64) // otherwise it is 0
	}
	return seq
}

// chunk is how much of a file is read at a time.
const chunk = 64 << 10

// backward passes the lines before the offset end to the function each, last line first,
// until it returns false. It skips lines that are longer than any line of a log.
func backward(f io.ReaderAt, end int64, each func(line []byte) bool) error {
	var rest []byte // the end of a line that the next chunk completes
	long := false   // that line is too long, and rest was dropped
	for end > 0 {
		n := min(chunk, end)
		buf := make([]byte, n, n+int64(len(rest)))
		if read, err := f.ReadAt(buf, end-n); err != nil && !(errors.Is(err, io.EOF) && int64(read) == n) {
			return err
		}
		buf, end = append(buf, rest...), end-n

		for i := bytes.LastIndexByte(buf, '\n'); i >= 0; i = bytes.LastIndexByte(buf, '\n') {
			line := buf[i+1:]
			buf = buf[:i]
			if len(line) > 0 && !long && !each(line) {
				return nil
			}
			long = false
		}
		if rest = buf; len(rest) > maxLine {
			rest, long = nil, true
		}
	}
	if len(rest) > 0 && !long {
		each(rest)
	}
	return nil
}

// endBefore returns an offset at or after the end of the lines whose numbers are less
// than before. Numbers rise within a log; if they cannot be read, it returns the end of
// the file.
func endBefore(f io.ReaderAt, size, before int64) int64 {
	low, high := int64(0), size // the line at low is below, the one at high is not
	for high-low > chunk {
		middle := low + (high-low)/2
		begin, seq := lineAfter(f, middle)
		switch {
		case seq == 0:
			return size // the excess does not match
		case begin >= high:
			return high
		case seq < before:
			low = begin
		default:
			high = begin
		}
	}
	return high
}

// lineAfter returns the offset and number of the first line that begins after an offset;
// 0 if it has no number.
func lineAfter(f io.ReaderAt, at int64) (begin, seq int64) {
	for _, size := range []int{4 << 10, maxLine + 64} { // few lines are long
		buf := make([]byte, size)
		n, _ := f.ReadAt(buf, at) // after an error there is less to find
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 && (i+64 < n || n < size) {
			return at + int64(i) + 1, numberOf(buf[i+1 : n])
		}
	}
	return at, 0
}

// fileEnd describes the end of a file.
type fileEnd struct {
	size         int64
	text, before []byte // the last line and the one before it, without line breaks
	ended        bool   // the last line has its line break
}

// lastLine reads the end of a file.
func lastLine(name string) (e fileEnd, err error) {
	f, err := os.Open(name)
	if err != nil {
		return e, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return e, err
	}

	e.size = info.Size()
	tail := make([]byte, min(e.size, 2*maxLine))
	if _, err := f.ReadAt(tail, e.size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return e, err
	}
	tail, e.ended = bytes.CutSuffix(tail, []byte("\n"))
	i := bytes.LastIndexByte(tail, '\n')
	e.text = tail[i+1:]
	if i >= 0 {
		e.before = tail[bytes.LastIndexByte(tail[:i], '\n')+1 : i]
	}
	return e, nil
}
