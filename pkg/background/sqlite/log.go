package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/toolhost/toolhost/pkg/background"
)

const (
	runsFolder = "runs"
	outputNew  = background.OutputLog + ".new" // the output of a run that is about to end
	tailPrefix = "tail."
)

// A logFile is the log of an attempt while it goes on. The first bytes, up to
// three quarters of the run's cap, are in output.log. What comes then goes to
// segments, files of a quarter of the cap each; of them the last two are kept,
// so that there always is a whole quarter. Files are only ever appended to, so
// that the death of the process leaves what was appended before.
//
// The name of a segment, tail.{head}.{offset}, says how long the head is and
// where in the stream the segment begins.
type logFile struct {
	dir              string
	headCap, tailCap int64

	mu     sync.Mutex
	head   int64 // bytes of the stream in output.log
	sealed bool  // nothing more goes there
	segs   []segment
	stale  []segment // to be removed once what comes after them is written
	end    int64     // length of the stream
	rest   int64     // bytes of files that an earlier process left, and the end removes
}

type segment struct{ head, off, n int64 }

func (l *logFile) path(s segment) string { return filepath.Join(l.dir, segmentName(s.head, s.off)) }

// newLog returns the log of a run's attempt that begins now.
func (e *Engine) newLog(run background.Run) *logFile {
	outputCap := int64(max(1, run.OutputCap))
	head := outputCap/4*3 + outputCap%4*3/4
	return &logFile{dir: e.path(runsFolder, run.Folder()), headCap: head, tailCap: outputCap - head}
}

// append adds p, which begins at offset of the stream, as [background.Lease]
// has it. After an error, what was written before it is part of the log.
func (l *logFile) append(offset int64, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset > l.end {
		l.skipTo(offset)
	} else if over := l.end - offset; over >= int64(len(p)) {
		return nil
	} else {
		p = p[over:]
	}
	if room := l.headCap - l.head; !l.sealed && room > 0 {
		k := min(int64(len(p)), room)
		if err := l.writeHead(p[:k]); err != nil {
			return err
		}
		p = p[k:]
	}
	for len(p) > 0 {
		l.sealed = true
		k, err := l.appendTail(p)
		if err != nil {
			return err
		}
		p = p[k:]
	}
	return nil
}

// skipTo makes the stream go on at offset.
func (l *logFile) skipTo(offset int64) {
	l.sealed = true
	l.stale, l.segs = append(l.stale, l.segs...), nil
	l.end = offset
}

// dropStale removes segments that are no longer needed. One that cannot be
// removed is tried again.
func (l *logFile) dropStale() {
	l.stale = slices.DeleteFunc(l.stale, func(s segment) bool {
		err := os.Remove(l.path(s))
		return err == nil || errors.Is(err, fs.ErrNotExist)
	})
}

func (l *logFile) writeHead(p []byte) error {
	flags := 0
	if l.head == 0 {
		flags = os.O_TRUNC
	}
	if err := writeAt(filepath.Join(l.dir, background.OutputLog), flags, p, l.head); err != nil {
		return err
	}
	l.head += int64(len(p))
	l.end += int64(len(p))
	return nil
}

// appendTail writes the first bytes of p to the last segment, and returns how
// many. Of a p longer than the tail, only the last bytes are written.
func (l *logFile) appendTail(p []byte) (int, error) {
	if skip := int64(len(p)) - l.tailCap; skip > l.tailCap {
		l.skipTo(l.end + skip)
		return int(skip), nil
	}
	if last := len(l.segs) - 1; last < 0 || l.segs[last].n == l.tailCap {
		if len(l.segs) == 2 {
			l.stale, l.segs = append(l.stale, l.segs[0]), l.segs[1:]
		}
		l.segs = append(l.segs, segment{head: l.head, off: l.end})
	}
	seg := &l.segs[len(l.segs)-1]
	k := min(int64(len(p)), l.tailCap-seg.n)
	flags := 0
	if seg.n == 0 {
		flags = os.O_TRUNC
	}
	if err := writeAt(l.path(*seg), flags, p[:k], seg.n); err != nil {
		return 0, err
	}
	seg.n += k
	l.end += k
	l.dropStale()
	return int(k), nil
}

// writeAt writes p to a file at an offset, and makes the file and its folder
// if they are not there. After an error the file is no longer than before.
func writeAt(path string, flags int, p []byte, at int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if _, err = f.WriteAt(p, at); err != nil {
		_ = f.Truncate(at)
	}
	return err
}

// size returns how many bytes the log takes on disk.
func (l *logFile) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.head + l.rest
	for _, s := range slices.Concat(l.stale, l.segs) {
		n += s.n
	}
	return n
}

// logSize returns how many bytes the log in a folder takes on disk.
func logSize(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if isLog(entry.Name()) {
			if info, err := entry.Info(); err == nil {
				n += info.Size()
			}
		}
	}
	return n
}
