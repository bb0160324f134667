package rootfs

import (
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero/experimental/sys"
)

// errnoLimit is what the guest sees when it meets a limit: wazero's errno has
// neither ENOSPC nor EMFILE, and maps every number it does not know to EIO.
// EAGAIN would invite a guest to try forever.
const errnoLimit = sys.EIO

// limits counts what one mount has used. It is safe for concurrent use.
type limits struct {
	maxFiles int
	maxBytes int64

	mu    sync.Mutex
	files int   // open now
	bytes int64 // written so far
	hit   error // the first limit met
}

func newLimits(opts Options) *limits {
	l := &limits{maxFiles: opts.MaxOpenFiles, maxBytes: opts.MaxBytes}
	if l.maxFiles == 0 {
		l.maxFiles = DefaultMaxOpenFiles
	}
	if l.maxBytes == 0 {
		l.maxBytes = DefaultMaxBytes
	}
	return l
}

// addFile takes one place among the open files.
func (l *limits) addFile() sys.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files >= l.maxFiles {
		l.report(fmt.Errorf("%w: %d", ErrMaxOpenFiles, l.maxFiles))
		return errnoLimit
	}
	l.files++
	return 0
}

func (l *limits) dropFile() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files--
}

// spend takes n bytes, all or none.
func (l *limits) spend(n int64) sys.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.maxBytes-l.bytes {
		l.report(fmt.Errorf("%w: %d", ErrMaxBytes, l.maxBytes))
		return errnoLimit
	}
	l.bytes += n
	return 0
}

// refund gives back bytes that were spent and then not written.
func (l *limits) refund(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= n
}

func (l *limits) report(err error) {
	if l.hit == nil {
		l.hit = err
	}
}

func (l *limits) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hit
}
