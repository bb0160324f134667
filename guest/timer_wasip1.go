package guest

import (
	"encoding/binary"
	"os"
	"strconv"
	"time"

	"github.com/toolhost/toolhost/abi"
)

//go:wasmimport wasi_snapshot_preview1 fd_fdstat_set_flags
func setFlags(fd int32, flags uint32) uint32

const (
	stdin    = 0
	nonblock = 4 // FDFLAGS_NONBLOCK of WASI
)

// idle is stdin, registered with the runtime's poller. When no goroutine can run, the
// host makes it ready, with the time until the first timer as data. See
// host/idling.go.
var idle *os.File

func openIdle() {
	setFlags(stdin, nonblock) // otherwise it would not be polled
	idle = os.NewFile(stdin, "idle")
	setFlags(stdin, 0)
}

var (
	untilNext [8]byte
	reading   bool // the goroutine of the exports is waiting for idle
)

// untilIdle lets other goroutines run until none can, or until wake is called. It
// returns the time until the runtime's first timer, or a negative number if no timer
// would fire.
func untilIdle() (time.Duration, error) {
	setFlags(stdin, nonblock) // until it is read
	reading = true
	_, err := idle.Read(untilNext[:])
	reading = false
	return time.Duration(binary.LittleEndian.Uint64(untilNext[:])), err
}

// wake ends untilIdle with an error, since other goroutines may never let it end.
func wake() {
	if reading {
		_ = idle.SetReadDeadline(time.Unix(0, 0))
	}
}

// timer is the operation that ends when the runtime's first timer fires.
var timer alarm

// alarm uses one operation at a time, because a call may have only a few.
type alarm struct {
	id       int32 // operation that is pending; 0 if there is none
	due      time.Time
	canceled bool // the operation ends soon, and another one may then be started
	stopped  bool // the call is being stopped, which ends sleeps immediately
}

// slack is how late a timer may be, so that not every new timer cancels an operation.
const slack = time.Millisecond

// set makes the host resume the module after that time or earlier.
func (a *alarm) set(after time.Duration) error {
	due := time.Now().Add(after)
	switch {
	case a.stopped && len(pending) > 0: // their end resumes the module
		return nil
	case a.id != 0:
		if !a.canceled && due.Before(a.due.Add(-slack)) {
			a.canceled = true
			cancelOperation(a.id)
		}
		return nil
	}

	ms := (after + time.Millisecond - 1) / time.Millisecond
	id, response := imports{}.start("sleep", []byte(`{"ms":`+strconv.FormatInt(int64(ms), 10)+`}`))
	if id < 0 {
		return now.call.failure("sleep", id, response)
	}
	*a = alarm{id: id, due: due, stopped: a.stopped}
	return nil
}

// end records that the operation has ended.
func (a *alarm) end(code int32) {
	a.stopped = a.stopped || code == abi.CallCanceled && !a.canceled
	a.id, a.canceled = 0, false
}
