package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of a [Config].
const (
	DefaultFileSize = 64 << 20
	DefaultFiles    = 16
)

// Config configures a [Log]. The zero value selects the defaults.
type Config struct {
	FileSize int64        // size in bytes at which a new file begins; 0 means DefaultFileSize
	Files    int          // number of newest files to keep; 0 means DefaultFiles, negative keeps all files
	Logger   *slog.Logger // receives write errors, and the Head of the log when it is opened and closed; nil discards both
}

// Log is an open log. The caller has to make sure that only one process writes to a
// folder at a time. A nil *Log drops everything. It is safe for concurrent use.
type Log struct {
	dir string
	cfg Config

	mu    sync.Mutex
	file  *os.File
	size  int64
	head  Head
	dirty bool
	lost  int64  // events lost since the last line
	why   error  // why the first of them was lost
	count int64  // lines written by this process
	gone  int64  // events lost by this process
	early *Event // removal of a young file that is not recorded in the log yet; nil if there is none
	ended bool
	line  bytes.Buffer

	closed  atomic.Bool
	stop    context.CancelFunc
	syncing sync.WaitGroup
}

// Head identifies the last line of a log. With a copy of it, [Verify] can tell that nothing
// before that line was changed or removed.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"` // SHA-256 of the line, in hex
}

// zero is the hash before the first line.
var zero = strings.Repeat("0", sha256.Size*2)

const (
	prefix, suffix = "audit-", ".jsonl"
	syncEvery      = time.Second
)

// fileName returns the name of the file whose first line has the number first.
func fileName(first int64) string { return fmt.Sprintf("%s%019d%s", prefix, first, suffix) }

// Open opens the log in a folder, which is created if it does not exist. It continues
// the chain of the newest file, and does not check older lines: see [Verify].
func Open(dir string, cfg Config) (*Log, error) {
	if cfg.FileSize <= 0 {
		cfg.FileSize = DefaultFileSize
	}
	if cfg.Files == 0 {
		cfg.Files = DefaultFiles
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{dir: dir, cfg: cfg, head: Head{0, zero}}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.syncing.Go(func() { l.syncAll(ctx) })
	cfg.Logger.Info("the audit log continues", "folder", dir, "seq", l.head.Seq, "hash", l.head.Hash)
	return l, nil
}

func (l *Log) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	files, err := filesOf(l.dir)
	if err != nil || len(files) == 0 {
		return err
	}

	newest := filepath.Join(l.dir, files[len(files)-1])
	last, err := lastLine(newest)
	if err != nil {
		return err
	}
	if l.file, err = os.OpenFile(newest, os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	l.size = last.size
	if last.size == 0 { // the process crashed before its first line
		l.head.Seq, l.head.Hash, err = l.endOf(files[:len(files)-1])
		return err
	}
	if !last.ended {
		if _, err := l.file.Write([]byte("\n")); err != nil {
			return err
		}
		l.size++
	}

	e, err := decode(last.text)
	if err != nil { // cut off, as by a power loss: it stays, and the chain includes it
		e.Seq = firstOf(newest)
		if last.before != nil {
			before, err := decode(last.before)
			if err != nil {
				return fmt.Errorf("%s: the last two lines are damaged: move the folder away to begin a new log", filepath.Base(newest))
			}
			e.Seq = before.Seq + 1
		}
	}
	l.head = Head{e.Seq, hashOf(last.text)}
	return nil
}

// endOf returns the head of the newest of these files.
func (l *Log) endOf(files []string) (seq int64, hash string, err error) {
	if len(files) == 0 {
		return 0, zero, nil
	}
	last, err := lastLine(filepath.Join(l.dir, files[len(files)-1]))
	if err != nil {
		return 0, "", err
	}
	e, err := decode(last.text)
	return e.Seq, hashOf(last.text), err
}

// firstOf returns the number of a file's first line; 0 if it is not a file of a log.
func firstOf(name string) int64 {
	var first int64
	if _, err := fmt.Sscanf(filepath.Base(name), prefix+"%d"+suffix, &first); err != nil || fileName(first) != filepath.Base(name) {
		return 0
	}
	return first
}

// filesOf lists the files of a log, oldest first.
func filesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if firstOf(e.Name()) > 0 && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func decode(line []byte) (e Event, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&e); err == nil && (e.Seq < 1 || len(e.Prev) != len(zero)) {
		err = errors.New("not a line of an audit log")
	}
	return e, err
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// Append writes an event, and sets its Seq, At and Prev. Events that cannot be written
// are counted, reported to the logger once, and recorded in a line of kind [Lost] as soon
// as writing works again.
func (l *Log) Append(e Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}

	if l.lost > 0 {
		if l.write(Event{Kind: Lost, Count: l.lost, Reason: "not written: " + l.why.Error()}) != nil {
			l.lost, l.gone = l.lost+1, l.gone+1
			return
		}
		l.lost, l.why = 0, nil
	}
	if err := l.write(e); err != nil {
		l.lost, l.gone, l.why = l.lost+1, l.gone+1, plainError(err)
		l.cfg.Logger.Error("the audit log cannot be written: events are missing until there is a line of kind lost", "folder", l.dir, "error", err)
	}
	if early := l.early; early != nil {
		l.early = nil // the line itself can begin another file
		if l.write(*early) != nil {
			l.early = early
		}
	}
}

// plainError returns an error without the path of a file.
func plainError(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// write writes one line, in a new file if the present one is full.
func (l *Log) write(e Event) error {
	e.Seq, e.At, e.Prev = l.head.Seq+1, time.Now().UTC(), l.head.Hash
	e.cut()
	if l.file == nil || l.size >= l.cfg.FileSize {
		if err := l.rotate(e.Seq); err != nil {
			return err
		}
	}

	l.line.Reset()
	enc := json.NewEncoder(&l.line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return err
	}
	line := l.line.Bytes()
	n, err := l.file.Write(line)
	if err != nil {
		if n > 0 { // a part of a line would break the chain
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		return err
	}
	l.size += int64(n)
	l.dirty = true
	l.count++
	l.head = Head{e.Seq, hashOf(line[:len(line)-1])}
	return nil
}

// cut shortens texts that are too long. Others may have chosen them.
func (e *Event) cut() {
	for _, text := range []*string{&e.Session, &e.User, &e.By, &e.ID, &e.Parent, &e.Tool, &e.Plugin, &e.Digest, &e.Signer, &e.Action, &e.Outcome, &e.Code, &e.Reason, &e.Method, &e.Host} {
		*text = shorten(*text)
	}

	more := len(e.Names) - maxNames
	e.Names = slices.Clone(e.Names[:min(len(e.Names), maxNames)])
	for i, name := range e.Names {
		e.Names[i] = shorten(name)
	}
	if more > 0 {
		e.Names = append(e.Names, fmt.Sprintf("… and %d more", more))
	}
}

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// rotate begins a new file, and removes files that are too old.
func (l *Log) rotate(first int64) error {
	next, err := os.OpenFile(filepath.Join(l.dir, fileName(first)), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			l.cfg.Logger.Error("a file of the audit log may not be on disk", "error", err)
		}
	}
	l.file, l.size = next, 0

	files, err := filesOf(l.dir)
	if err != nil || l.cfg.Files < 0 {
		return nil
	}
	for i := range files[:max(0, len(files)-l.cfg.Files)] {
		l.remove(files[i], firstOf(files[i+1])-firstOf(files[i]))
	}
	return nil
}

// young is the age below which removing events deserves a warning: someone could cause
// many events to push out the traces of earlier ones.
const young = 24 * time.Hour

// remove removes a file with that number of events.
func (l *Log) remove(name string, events int64) {
	newest := newestOf(filepath.Join(l.dir, name))
	if err := os.Remove(filepath.Join(l.dir, name)); err != nil {
		l.cfg.Logger.Error("an old file of the audit log is not removed", "error", err)
		return
	}
	if time.Since(newest) >= young {
		return
	}

	l.cfg.Logger.Warn("the audit log was full, and events that are less than a day old were removed: raise audit.files or audit.file_size",
		"folder", l.dir, "file", name, "events", events, "newest", newest)
	if l.early == nil {
		l.early = &Event{Kind: Rotated}
	}
	l.early.Count += events
	l.early.Reason = "removed up to the event of " + newest.Format(time.RFC3339)
}

// newestOf returns when the last event of a file was written. If that line is damaged, it
// returns the modification time of the file.
func newestOf(file string) time.Time {
	if last, err := lastLine(file); err == nil {
		if e, err := decode(last.text); err == nil {
			return e.At
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return time.Now()
	}
	return info.ModTime()
}

// syncAll syncs what was written to disk, until ctx is done.
func (l *Log) syncAll(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.sync()
		}
	}
}

func (l *Log) sync() {
	l.mu.Lock()
	file, dirty := l.file, l.dirty
	l.dirty = false
	l.mu.Unlock()
	if !dirty {
		return
	}
	if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // rotate syncs the files it closes
		l.cfg.Logger.Error("the audit log may not be on disk", "error", err)
	}
}

// Counts returns how many lines this process has written, and how many events it has lost.
func (l *Log) Counts() (written, lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.gone
}

// Head returns the Head that identifies the last line of the log.
func (l *Log) Head() Head {
	if l == nil {
		return Head{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Close closes the log. Later events are dropped.
func (l *Log) Close() error {
	if l == nil || l.closed.Swap(true) {
		return nil
	}
	l.Append(Event{Kind: Closed})
	l.stop()
	l.syncing.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.cfg.Logger.Info("the audit log ends", "folder", l.dir, "seq", l.head.Seq, "hash", l.head.Hash)
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Sync(), l.file.Close())
}
