package wasi

import (
	"encoding/binary"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/sys"
)

// idling reports to a reactor that none of its threads can run, and how long its runtime
// would sleep, so that it knows when to return abi.InvokeWaiting. Only runtimes whose
// scheduler a plugin cannot query, such as Go's, need it. The other side is
// guest/timer_wasip1.go.
//
// The guest makes stdin non-blocking and reads it. There is nothing to read yet, so the
// runtime polls stdin, together with the clock of its first timer. It does so without a
// timeout, or with one above 0, only when it has nothing else to do. The host then does not
// sleep. It makes stdin ready with 8 bytes: the timeout in nanoseconds, or -1 without one,
// in little endian. After that stdin is empty and blocking again, as at the start.
type idling struct {
	armed bool   // stdin is non-blocking
	ready bool   // whether stdin has something to read
	flags uint32 // address to which fd_fdstat_get is about to write the flags of stdin, or 0
	delay int64  // the number that the guest reads from it
}

const (
	stdin = 0

	// Offsets and values of WASI.
	nonblock = 4 // flag of a descriptor
	flagsAt  = 2 // offset in the result of fd_fdstat_get

	// inPlace is the time below which a sleep is not worth returning from the guest.
	inPlace = time.Millisecond
	// maxDelay is the longest timeout that the guest reads. The guest can add to it without
	// overflow.
	maxDelay = 1 << 62
)

// before records what a WASI function is about to do with stdin. wazero's own functions
// do not support non-blocking stdin.
func (i *idling) before(function string, stack []uint64) {
	switch {
	case function == "fd_fdstat_set_flags" && uint32(stack[0]) == stdin:
		i.armed, i.ready = uint32(stack[1])&nonblock != 0, false
	case i.armed && function == "fd_fdstat_get" && uint32(stack[0]) == stdin:
		i.flags = uint32(stack[1])
	}
}

// after makes fd_fdstat_get report the flags that before recorded.
func (i *idling) after(mem api.Memory, results []uint64) {
	if i.flags == 0 {
		return
	}
	if flags, ok := mem.ReadUint16Le(i.flags + flagsAt); ok && uint32(results[0]) == 0 {
		mem.WriteUint16Le(i.flags+flagsAt, flags|nonblock)
	}
	i.flags = 0
}

// standardInput is stdin of a reactor.
type standardInput struct{ *Environment }

// Read implements io.Reader.
func (s standardInput) Read(p []byte) (int, error) {
	i := &s.idling
	switch {
	case !i.armed:
		return 0, nil // end of input
	case !i.ready:
		return 0, sys.EAGAIN
	}
	i.armed, i.ready = false, false
	return copy(p, binary.LittleEndian.AppendUint64(nil, uint64(i.delay))), nil
}

// idle handles a poll of stdin by a guest that has nothing else to do before delay has
// passed. It makes stdin ready, or lets the guest sleep, and returns how long it slept,
// in nanoseconds.
func (e *Environment) idle(delay uint64) (slept uint64) {
	i, c := &e.idling, e.call
	waiting := c.Pending.Any()
	switch {
	case delay == never:
	case waiting && !c.Ops.Grant.Clock: // time stands still until an operation ends
		delay = never
	case !waiting && (!c.Ops.Grant.Clock || c.Ops.IsStopping() || delay < uint64(inPlace)):
		e.sleep(delay)
		return delay
	}

	i.ready, i.delay = true, int64(min(delay, maxDelay))
	if delay == never {
		i.delay = -1
	}
	return 0
}
