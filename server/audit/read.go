package audit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Query selects events. Its zero value selects all.
type Query struct {
	Kinds   []Kind
	Session string
	Tool    string
	Plugin  string
	ID      string // of the call, run, schedule or approval
	Before  int64  // only events with lower numbers; 0: all
	Limit   int    // at most so many, the newest; 0: all
}

func (q Query) matches(e Event) bool {
	return (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) && (q.Session == "" || q.Session == e.Session) &&
		(q.Tool == "" || q.Tool == e.Tool) && (q.Plugin == "" || q.Plugin == e.Plugin) && (q.ID == "" || q.ID == e.ID) &&
		(q.Before == 0 || e.Seq < q.Before)
}

// Read returns events of the log in a folder, the newest first. It does not check the
// chain, and leaves out lines that are not events.
func Read(dir string, q Query) ([]Event, error) {
	files, err := filesOf(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var found []Event
	for _, name := range slices.Backward(files) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it was just removed
		}
		if err != nil {
			return found, err
		}
		for len(data) > 0 {
			data = bytes.TrimSuffix(data, []byte("\n"))
			i := bytes.LastIndexByte(data, '\n')
			if e, err := decode(data[i+1:]); err == nil && q.matches(e) {
				if found = append(found, e); len(found) == q.Limit {
					return found, nil
				}
			}
			data = data[:i+1]
		}
	}
	return found, nil
}

// fileEnd is the end of a file.
type fileEnd struct {
	size         int64
	text, before []byte // of the last line and the one before it, without their ends
	ended        bool   // whether the last line has its end
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
