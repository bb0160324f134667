package sqlite

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
)

// A logFile is the log of an attempt while it runs. Its files are append-only, so
// that everything appended survives the death of the process. The first bytes, up
// to three quarters of the run's cap, go to output.log. The rest goes to
// segments, files of a quarter of the cap each, of which the last two are kept.
type logFile struct {
	dir              string
	headCap, tailCap int64

	mu   sync.Mutex
	head int64 // number of bytes of the stream in output.log; it is final once bytes are dropped or go to a segment
	end  int64 // length of the stream
	segs []segment
	used int64 // total size of its files, in bytes
}

// The name of a segment, tail.{head}.{offset}, contains the length of the head
// and the segment's offset in the stream.
type segment struct{ head, off, n int64 }

const tailPrefix = "tail."

func (s segment) name() string { return fmt.Sprintf("%s%d.%d", tailPrefix, s.head, s.off) }

func (l *logFile) path(s segment) string { return filepath.Join(l.dir, s.name()) }

func (l *logFile) output() string { return filepath.Join(l.dir, engine.OutputLog) }

func newLog(dir string, outputCap int) *logFile {
	outputCap = max(1, outputCap)
	head := int64(outputCap/4*3 + outputCap%4*3/4)
	return &logFile{dir: dir, headCap: head, tailCap: int64(outputCap) - head}
}

// append adds p, which begins at offset of the stream, as [engine.Lease]
// requires. After an error, the bytes written before it are part of the log.
func (l *logFile) append(offset int64, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if offset > l.end {
		l.skipTo(offset)
	} else {
		p = p[min(int64(len(p)), l.end-offset):]
	}

	for len(p) > 0 {
		n, err := l.write(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}

	return nil
}

// skipTo makes the stream continue at offset. The files of the segments stay
// until the following bytes are written.
func (l *logFile) skipTo(offset int64) { l.end, l.segs = offset, nil }

// write writes the first bytes of p to the file where they belong, and returns
// their number. If p is much longer than the tail, it writes only the last bytes.
func (l *logFile) write(p []byte) (n int64, err error) {
	if n = min(int64(len(p)), l.headCap-l.head); n > 0 && l.head == l.end {
		if err := writeAt(l.output(), p[:n], l.head, false); err != nil {
			return 0, err
		}
		l.head, l.end, l.used = l.head+n, l.end+n, l.used+n
		return n, nil
	}

	if skip := int64(len(p)) - l.tailCap; skip > l.tailCap {
		l.skipTo(l.end + skip)
		return skip, nil
	}
	if last := len(l.segs) - 1; last < 0 || l.segs[last].n == l.tailCap {
		l.segs = append(l.segs[max(0, last):], segment{head: l.head, off: l.end})
	}
	seg := &l.segs[len(l.segs)-1]
	n = min(int64(len(p)), l.tailCap-seg.n)
	if err := writeAt(l.path(*seg), p[:n], seg.n, false); err != nil {
		return 0, err
	}
	seg.n, l.end, l.used = seg.n+n, l.end+n, l.used+n
	if seg.n == n { // a new file
		keep := []string{engine.OutputLog}
		for _, s := range l.segs {
			keep = append(keep, s.name())
		}
		l.used -= removeLog(l.dir, keep...)
	}

	return n, nil
}

// kept reads the part of the stream that is kept. The lock must be held.
func (l *logFile) kept() (output.Buffer, error) {
	b := output.NewBuffer(int(l.headCap + l.tailCap))
	for i, s := range append([]segment{{n: l.head}}, l.segs...) {
		path := l.path(s)
		if i == 0 {
			path = l.output()
		}
		data, err := readStart(path, s.n)
		if err != nil && !missingFile(err) {
			return b, err
		}
		b.AppendAt(s.off, data)
	}
	b.AppendAt(l.end, nil)
	return b, nil
}

// read returns a piece of the log, as [output.Buffer] does.
func (l *logFile) read(offset int64, limit int) (engine.Chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	kept, err := l.kept()
	if err != nil {
		return engine.Chunk{}, err
	}
	return kept.Read(offset, limit), nil
}

func (l *logFile) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// seal makes the log durable in its final form, a single output.log, and returns
// its extent. The bytes after the head are appended to it; the segments stay until
// the end of the run is stored. If it fails, the log does not change.
func (l *logFile) seal() (extent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	x := extent{Head: l.head, Tail: l.head, End: l.end}
	var rest string
	if l.head < l.end {
		b, err := l.kept()
		if err != nil {
			return extent{Head: l.head, Tail: l.end, End: l.end}, err
		}
		kept := b.Output()
		x.Head = int64(len(kept.Head))
		x.Tail = x.Head + kept.Omitted
		l.head = min(l.head, x.Head)
		rest = kept.String()[l.head:]
	}

	err := writeAt(l.output(), []byte(rest), l.head, true)
	x.Whole = err == nil
	return x, err
}

// findLog returns the log of an attempt whose process is gone, up to the last
// append.
func findLog(dir string, outputCap int) (*logFile, error) {
	l := newLog(dir, outputCap)
	var segs []segment
	var written int64
	l.head = l.headCap
	err := logFiles(dir, func(file os.FileInfo) {
		l.used += file.Size()
		if file.Name() == engine.OutputLog {
			written = file.Size()
		} else if s, ok := parseSegment(file); ok {
			l.head = min(l.head, s.head)
			segs = append(segs, s)
		}
	})
	slices.SortFunc(segs, func(a, b segment) int { return cmp.Compare(a.off, b.off) })

	l.head = min(l.head, written)
	l.end = l.head
	for _, s := range segs {
		if s.off > l.end {
			l.segs = nil
		}
		if s.off+s.n > l.end {
			l.segs, l.end = append(l.segs, s), s.off+s.n
		}
	}

	return l, err
}

// parseSegment parses the name of a segment that is not empty.
func parseSegment(info os.FileInfo) (s segment, ok bool) {
	n, _ := fmt.Sscanf(info.Name(), tailPrefix+"%d.%d", &s.head, &s.off)
	s.n = info.Size()
	ok = n == 2 && info.Name() == s.name() && info.Mode().IsRegular() && s.n > 0 && 0 <= s.head && s.head <= s.off && s.off <= maxStream
	return s, ok
}

// maxStream is longer than any log.
const maxStream = 1 << 60

// An extent says where the log of a terminal run is. The bytes [0,Head) and
// [Tail,End) of the stream are kept; Head and Tail are equal if nothing is
// missing.
type extent struct {
	Head int64 `json:"head"`
	Tail int64 `json:"tail"`
	End  int64 `json:"end"`
	// Whole says that output.log is complete. Otherwise it could not be written,
	// and the log is still in its segments.
	Whole bool `json:"whole,omitempty"`
}

func (x extent) valid() bool {
	return 0 <= x.Head && x.Head <= x.Tail && x.Tail <= x.End && x.End <= maxStream
}

// size returns the length of output.log, if it is whole.
func (x extent) size() int64 {
	if x.Tail == x.Head {
		return x.End
	}
	return x.Head + int64(len(marker(x.Tail-x.Head))) + x.End - x.Tail
}

// marker returns the line in place of omitted bytes.
func marker(omitted int64) string { return output.Output{Omitted: omitted}.String() }

// read returns a piece of a whole log, as [output.Buffer] does.
func (x extent) read(file io.ReaderAt, offset int64, limit int) (engine.Chunk, error) {
	gap := x.Head < x.Tail
	if offset < 0 {
		offset = max(0, x.End+offset)
		if gap {
			offset = max(offset, x.Tail)
		}
	}
	offset = min(offset, x.End)
	end, at := x.End, offset
	if gap && offset < x.Head {
		end = x.Head
	} else if gap {
		offset = max(offset, x.Tail)
		at = x.size() - (x.End - offset)
	}

	data := make([]byte, min(end-offset, int64(max(0, limit))))
	if len(data) > 0 {
		if _, err := file.ReadAt(data, at); err != nil {
			return engine.Chunk{}, err
		}
	}

	return engine.Chunk{Offset: offset, Data: data, End: x.End}, nil
}

// logFiles calls do for each log file in a folder.
func logFiles(dir string, do func(file os.FileInfo)) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if isLog(entry.Name()) {
			if info, err := entry.Info(); err == nil {
				do(info)
			}
		}
	}
	if missingFile(err) {
		return nil
	}
	return err
}

// isLog reports whether a file in a run's folder is a part of its log.
func isLog(name string) bool {
	return strings.HasPrefix(name, engine.OutputLog) || strings.HasPrefix(name, tailPrefix)
}

// logSize returns the size on disk of the log in a folder, in bytes.
func logSize(dir string) (n int64) {
	_ = logFiles(dir, func(file os.FileInfo) { n += file.Size() })
	return n
}

// removeLog removes the log files in a folder, except those named in keep, and
// returns the total size of the removed files.
func removeLog(dir string, keep ...string) (n int64) {
	_ = logFiles(dir, func(file os.FileInfo) {
		if !slices.Contains(keep, file.Name()) && os.Remove(filepath.Join(dir, file.Name())) == nil {
			n += file.Size()
		}
	})
	return n
}
