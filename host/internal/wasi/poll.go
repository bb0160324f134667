package wasi

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
)

// Sizes, offsets and values of poll_oneoff.
const (
	subscriptionBytes = 48
	subscribedTo      = 8 // type of event
	subject           = 16
	clockTimeout      = 24
	clockFlags        = 40

	eventBytes = 32
	eventErrno = 8
	eventType  = 10
	eventSize  = 16 // bytes that can be read or written

	eventClock, eventRead, eventWrite = 0, 1, 2

	realtime  = 0 // clock; the other one is monotonic
	untilTime = 1 // flag: the timeout is a time of the clock
)

// never is the delay of an event that does not happen by itself.
const never = math.MaxUint64

// subscriptionCost is the cost of a subscription in units of fuel.
const subscriptionCost = 100

// pollOneoff is WASI's poll_oneoff, which waits until one of several events happens: a time
// comes, or a descriptor can be read or written. Nothing blocks here, except for stdin of a
// reactor that is idle (see idling), so any other open descriptor is ready at once. wazero's
// own version reports clocks whose time has not come, refuses absolute times, and may wait
// for nothing.
func pollOneoff(c *Call, mem api.Memory, stack []uint64) uint32 {
	n, result := uint64(uint32(stack[2])), uint32(stack[3])
	if n == 0 {
		return errnoInvalid
	}
	subscriptions, ok := arrayAt(mem, stack[0], n*subscriptionBytes)
	if !ok {
		return errnoFault
	}
	events, ok := arrayAt(mem, stack[1], n*eventBytes)
	if _, fits := mem.Read(result, 4); !ok || !fits {
		return errnoFault
	}

	env := c.env
	p := poll{Environment: env, subscriptions: subscriptions, clocks: [...]uint64{
		realtime: uint64(env.realtime().UnixNano()), monotonic: uint64(env.Monotonic()),
	}}
	if errno := p.wait(); errno != 0 {
		return errno
	}
	mem.WriteUint32Le(result, p.report(events))
	return 0
}

// arrayAt returns a part of the guest's memory.
func arrayAt(mem api.Memory, at, size uint64) ([]byte, bool) {
	if size > math.MaxUint32 {
		return nil, false
	}
	return mem.Read(uint32(at), uint32(size))
}

// poll is one call of poll_oneoff. The guest may have placed the events over the
// subscriptions, so that writing the former changes the latter.
type poll struct {
	*Environment
	subscriptions []byte
	clocks        [2]uint64 // the clocks when it began
	passed        uint64    // nanoseconds that it has waited
}

// wait waits until an event happens.
func (p *poll) wait() (errno uint32) {
	first, idles := uint64(never), false
	for at := 0; at < len(p.subscriptions); at += subscriptionBytes {
		p.call.Ops.Meter.Pay(subscriptionCost)
		s := p.subscriptions[at : at+subscriptionBytes]
		delay, errno := p.delay(s)
		if errno != 0 {
			return errno
		}
		first, idles = min(first, delay), idles || p.isIdle(s)
	}

	switch {
	case first == 0:
	case idles:
		p.passed = p.idle(first)
	default:
		p.sleep(first)
		p.passed = first
	}
	return 0
}

// delay returns how many nanoseconds after the beginning an event happens.
func (p *poll) delay(s []byte) (ns uint64, errno uint32) {
	switch s[subscribedTo] {
	case eventClock:
		return p.clockDelay(s)
	case eventRead, eventWrite:
		if p.isIdle(s) && !p.idling.ready {
			return never, 0
		}
		return 0, 0
	}
	return 0, errnoInvalid
}

func (p *poll) clockDelay(s []byte) (ns uint64, errno uint32) {
	clock := binary.LittleEndian.Uint32(s[subject:])
	if clock >= uint32(len(p.clocks)) {
		return 0, errnoInvalid
	}
	timeout := binary.LittleEndian.Uint64(s[clockTimeout:])
	switch binary.LittleEndian.Uint16(s[clockFlags:]) {
	case 0:
		return timeout, 0
	case untilTime:
		return timeout - min(p.clocks[clock], timeout), 0
	}
	return 0, errnoInvalid
}

// isIdle reports whether a subscription is for stdin of a reactor that wants to know when it
// is idle.
func (p *poll) isIdle(s []byte) bool {
	return p.idling.armed && s[subscribedTo] == eventRead && binary.LittleEndian.Uint32(s[subject:]) == stdin
}

// report writes the events that have happened, and returns their number.
func (p *poll) report(events []byte) (n uint32) {
	for at := 0; at < len(p.subscriptions); at += subscriptionBytes {
		s := [subscriptionBytes]byte(p.subscriptions[at:])
		if delay, errno := p.delay(s[:]); errno != 0 || delay > p.passed {
			continue
		}

		e := events[n*eventBytes:][:eventBytes]
		n++
		clear(e)
		copy(e, s[:subscribedTo])
		e[eventType] = s[subscribedTo]
		if s[subscribedTo] == eventClock {
			continue
		}

		e[eventSize] = 1 // at least: how many is not known
		if _, open := p.files.open[binary.LittleEndian.Uint32(s[subject:])]; !open {
			e[eventErrno], e[eventSize] = errnoBadDescriptor, 0
		}
	}
	return n
}
