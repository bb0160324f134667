package host

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
	ready bool   // it has something to read
	flags uint32 // address to which fd_fdstat_get is about to write the flags of stdin, or 0
	delay int64  // timeout of the current poll
}

const (
	stdin = 0

	// Offsets and values of WASI.
	nonblock       = 4  // flag of a descriptor
	flagsAt        = 2  // offset in the result of fd_fdstat_get
	subscription   = 48 // bytes
	subscribedTo   = 8  // offset in a subscription
	clockTimeoutAt = 24

	// maxSubscriptions is how many subscriptions are searched. Go's clock is the first.
	maxSubscriptions = 1 << 10

	// inPlace is the time below which a sleep is not worth returning from the guest.
	inPlace = time.Millisecond
)

// before records what a WASI function is about to do with stdin. wazero's own functions
// do not support non-blocking stdin, and do not pass the timeout of a poll to readers.
func (i *idling) before(function string, mem api.Memory, stack []uint64) {
	switch {
	case function == "fd_fdstat_set_flags" && uint32(stack[0]) == stdin:
		i.armed, i.ready = uint32(stack[1])&nonblock != 0, false
	case !i.armed:
	case function == "fd_fdstat_get" && uint32(stack[0]) == stdin:
		i.flags = uint32(stack[1])
	case function == "poll_oneoff":
		i.delay = timeoutOf(mem, uint32(stack[0]), uint32(stack[2]))
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

// timeoutOf returns the timeout of a poll, or -1 without one.
func timeoutOf(mem api.Memory, at, n uint32) int64 {
	timeout := int64(-1)
	for n = min(n, maxSubscriptions); n > 0; n, at = n-1, at+subscription {
		one, ok := mem.Read(at, subscription)
		if !ok {
			return timeout // wazero refuses it
		}
		if one[subscribedTo] != 0 { // not a clock
			continue
		}
		d := int64(min(binary.LittleEndian.Uint64(one[clockTimeoutAt:]), 1<<62))
		if timeout < 0 || d < timeout {
			timeout = d
		}
	}
	return timeout
}

// standardInput is stdin of a reactor.
type standardInput struct{ *environment }

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

// Poll implements sys.Pollable. It reports whether there is something to read.
func (s standardInput) Poll(sys.Pflag, int32) (ready bool, errno sys.Errno) {
	i, c := &s.idling, s.call
	waiting := c.pending.Any()
	switch {
	case !i.armed || i.ready:
		return true, 0
	case i.delay == 0: // it only polls
		return false, 0
	case i.delay < 0:
	case waiting && !c.Policy.Clock: // time stands still until an operation ends
		i.delay = -1
	case !waiting && (!c.Policy.Clock || c.ops.IsStopping() || time.Duration(i.delay) < inPlace):
		s.nap(i.delay)
		return false, 0
	}
	i.ready = true
	return true, 0
}

// nap sleeps in place.
func (e *environment) nap(ns int64) {
	c := e.call
	e.state.Now += ns
	if !c.Policy.Clock {
		return
	}
	// A stop does not interrupt it, or the guest would sleep again and again.
	c.guest.Idle()
	timer := time.NewTimer(time.Duration(ns))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
	c.guest.Compute()
	c.meter.Check()
}
