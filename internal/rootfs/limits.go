package rootfs

import (
	"cmp"
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

// addFile takes one place among the open files.
func (l *limits) addFile() sys.Errno {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files >= l.maxFiles {
		return l.report(fmt.Errorf("%w: %d", ErrMaxOpenFiles, l.maxFiles))
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
		return l.report(fmt.Errorf("%w: %d", ErrMaxBytes, l.maxBytes))
	}
	l.bytes += n
	return 0
}

// spendOn takes n bytes for an operation, and gives them back if it fails.
func (l *limits) spendOn(n int64, do func() sys.Errno) sys.Errno {
	errno := l.spend(n)
	if errno != 0 {
		return errno
	}
	if errno = do(); errno != 0 {
		l.refund(n)
	}
	return errno
}

// refund gives back bytes that were spent and then not written.
func (l *limits) refund(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= n
}

// report keeps the first limit met.
func (l *limits) report(err error) sys.Errno {
	l.hit = cmp.Or(l.hit, err)
	return errnoLimit
}

func (l *limits) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hit
}
