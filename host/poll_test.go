package host_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// The types of subscriptions and events, the clocks, and errors of WASI.
const (
	toClock, toRead, toWrite           = 0, 1, 2
	realtime, monotonic                = 0, 1
	errnoBadf, errnoFault, errnoInval  = 8, 21, 28
	subscriptionsAt, eventsAt, countAt = dataAt, 8192, 100
)

// until is a subscription to the time of a clock, or to the time after a timeout.
func until(userdata byte, clock uint32, timeout uint64, absolute bool) string {
	s := make([]byte, 48)
	s[0], s[8] = userdata, toClock
	binary.LittleEndian.PutUint32(s[16:], clock)
	binary.LittleEndian.PutUint64(s[24:], timeout)
	if absolute {
		s[40] = 1
	}
	return string(s)
}

// ready is a subscription to a descriptor that can be read or written.
func ready(userdata, kind byte, fd int32) string {
	s := make([]byte, 48)
	s[0], s[8] = userdata, kind
	binary.LittleEndian.PutUint32(s[16:], uint32(fd))
	return string(s)
}

// event is what poll_oneoff reports.
type event struct {
	userdata, kind byte
	errno          uint16
}

// poller is a guest that polls subscriptions. It writes the monotonic clock, the result,
// the number of events, the events, and the clock again.
func poller(subscriptions ...string) guest {
	n := int64(len(subscriptions))
	clock := seq(i32(monotonic), i64(1), i32(200), call(fnClock), drop(nil), drop(write(abi.StreamOutput, 200, 8)))
	return guest{data: strings.Join(subscriptions, ""), invoke: seq(
		clock, tell(wasi(fnPoll, subscriptionsAt, eventsAt, n, countAt)), tell(load(i32(countAt))),
		drop(write(abi.StreamOutput, eventsAt, 32*n)), clock, i32(0),
	)}
}

// polled is the outcome of a poller.
type polled struct {
	errno  int32
	events []event
	passed time.Duration // by the guest's clock
}

func pollOf(t *testing.T, o outcome) polled {
	t.Helper()
	require.NoError(t, o.err)
	b := []byte(o.stdout)
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	clock := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }

	p := polled{errno: int32(word(8)), passed: time.Duration(clock(len(b)-8) - clock(0))}
	for i := range int(word(12)) {
		e := b[16+32*i:][:32]
		p.events = append(p.events, event{e[0], e[10], binary.LittleEndian.Uint16(e[8:])})
	}
	return p
}

// TestPollOneoff: descriptors are ready at once, and only clocks whose time has come are reported,
// whether time is real or stands still.
func TestPollOneoff(t *testing.T) {
	const second, hour = uint64(time.Second), uint64(time.Hour)
	for name, c := range map[string]struct {
		subscriptions []string
		events        []event
		errno         int32
		passed        time.Duration
	}{
		"writing":                {[]string{ready(1, toWrite, 1), ready(2, toWrite, 2)}, []event{{1, toWrite, 0}, {2, toWrite, 0}}, 0, 0},
		"reading":                {[]string{ready(1, toRead, 0), ready(2, toRead, 1)}, []event{{1, toRead, 0}, {2, toRead, 0}}, 0, 0},
		"closed":                 {[]string{ready(1, toWrite, 9), ready(2, toRead, -1)}, []event{{1, toWrite, errnoBadf}, {2, toRead, errnoBadf}}, 0, 0},
		"a clock":                {[]string{until(1, monotonic, hour, false)}, []event{{1, toClock, 0}}, 0, time.Hour},
		"a clock and stdin":      {[]string{until(1, monotonic, 3*second, false), ready(2, toRead, 0)}, []event{{2, toRead, 0}}, 0, 0},
		"two clocks":             {[]string{until(1, monotonic, hour, false), until(2, realtime, second, false)}, []event{{2, toClock, 0}}, 0, time.Second},
		"two that are due":       {[]string{until(1, monotonic, second, false), until(2, monotonic, hour, false), until(3, realtime, second, false)}, []event{{1, toClock, 0}, {3, toClock, 0}}, 0, time.Second},
		"only a look":            {[]string{until(1, monotonic, 0, false), until(2, monotonic, 1, false)}, []event{{1, toClock, 0}}, 0, 0},
		"for ever, and a stream": {[]string{until(1, monotonic, math.MaxUint64, false), ready(2, toWrite, 1)}, []event{{2, toWrite, 0}}, 0, 0},
		"a time that has passed": {[]string{until(1, monotonic, 1, true), until(2, realtime, 1, true)}, []event{{1, toClock, 0}, {2, toClock, 0}}, 0, 0},
		"another clock":          {[]string{until(1, 2, second, false)}, nil, errnoInval, 0},
		"another type":           {[]string{ready(1, toWrite, 1), ready(2, 3, 1)}, nil, errnoInval, 0},
		"another flag":           {[]string{until(1, monotonic, 1, false)[:40] + "\x02" + strings.Repeat("\x00", 7)}, nil, errnoInval, 0},
		"nothing":                {nil, nil, errnoInval, 0},
	} {
		for _, granted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clock %v", name, granted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					p := pollOf(t, run(t, poller(c.subscriptions...), host.Call{Policy: host.Policy{Timeout: 2 * time.Hour, Grant: host.Grant{Clock: granted}}}))
					if !granted { // it moves when it is read
						p.passed -= time.Microsecond
					}
					require.Equal(t, polled{c.errno, c.events, c.passed}, p)
					if !granted {
						c.passed = 0
					}
					require.Equal(t, c.passed, time.Since(begin), "of real time")
				})
			})
		}
	}
}

// TestPollUntil: a time of a clock is reached exactly, also one of the time of day.
func TestPollUntil(t *testing.T) {
	start := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	synctest.Test(t, func(t *testing.T) {
		at := uint64(time.Now().Add(time.Minute).UnixNano())
		p := pollOf(t, run(t, poller(until(1, realtime, at, true)), host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}}))
		require.Equal(t, polled{0, []event{{1, toClock, 0}}, time.Minute}, p)
	})
	for clock, at := range map[uint32]uint64{realtime: uint64(start.Add(time.Minute).UnixNano()), monotonic: uint64(time.Minute)} {
		p := pollOf(t, run(t, poller(until(1, clock, at, true)), host.Call{}))
		require.Equal(t, polled{0, []event{{1, toClock, 0}}, time.Minute}, p, "from the first read to the second, which each move it")
	}
}

// TestPollForEver: a poll for longer than a clock can tell lasts until the call ends, and a
// clock that stands still never goes back.
func TestPollForEver(t *testing.T) {
	for _, granted := range []bool{true, false} {
		for _, timeout := range []uint64{1 << 63, math.MaxUint64} {
			for _, absolute := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					o := run(t, poller(until(1, monotonic, timeout, absolute)), host.Call{Policy: host.Policy{Timeout: time.Minute, Grant: host.Grant{Clock: granted}}})
					require.ErrorIs(t, o.err, context.DeadlineExceeded)
					require.Equal(t, time.Minute, time.Since(begin))
				})
			}
		}
	}

	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		p := pollOf(t, run(t, poller(until(1, monotonic, math.MaxUint64, false)), host.Call{Stopping: stop}))
		require.Equal(t, []event{{1, toClock, 0}}, p.events)
		require.Positive(t, p.passed)
	})
}

// TestPollOfFiles: a file is ready until it is closed.
func TestPollOfFiles(t *testing.T) {
	const pathOpen, closeFD = fnPrestat, fnArgs
	g := guest{data: "new" + strings.Repeat("\x00", 5) + ready(1, toWrite, 4) + ready(2, toRead, 4) + ready(3, toRead, 3)}
	g.change = func(m *wasmbin.Module) {
		m.Imports[pathOpen].Name, m.Types[pathOpen] = "path_open", sig("iiiiillii", true)
		m.Imports[closeFD].Name, m.Types[closeFD] = "fd_close", sig("i", true)
	}
	poll := seq(drop(wasi(fnPoll, dataAt+8, eventsAt, 3, countAt)), drop(write(abi.StreamOutput, eventsAt, 96)))
	create := func(path int64) code {
		return seq(i32(3), i32(0), i32(path), i32(3), i32(1), i64(1<<6|1<<1), i64(0), i32(0), i32(300), call(pathOpen))
	}
	g.invoke = seq(tell(create(dataAt)), tell(load(i32(300))), poll, tell(wasi(closeFD, 4)), poll, tell(create(-1)), poll, i32(0))

	o := run(t, g, host.Call{Policy: host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: t.TempDir(), Path: "/work", Mode: abi.FileWrite}}}}})
	require.NoError(t, o.err)
	b := []byte(o.stdout)
	require.Equal(t, "\x00\x00\x00\x00\x04\x00\x00\x00", string(b[:8]))
	require.Equal(t, []byte{0, 0, 0}, []byte{b[8+8], b[8+40], b[8+72]}, "open")
	require.Equal(t, []byte{errnoBadf, errnoBadf, 0}, []byte{b[108+8], b[108+40], b[108+72]}, "closed")
	require.Equal(t, []byte{errnoBadf, errnoBadf, 0}, []byte{b[208+8], b[208+40], b[208+72]}, "not opened")
}

// TestHostilePoll: sizes and places that do not fit, events over their subscriptions, and
// many subscriptions for little fuel.
func TestHostilePoll(t *testing.T) {
	for name, c := range map[string]struct {
		in, out, n, count int64
		errno             int32
	}{
		"too many":                 {0, 0, page, 0, errnoFault},
		"a size that overflows":    {0, 0, 1 << 28, 0, errnoFault},
		"a negative number":        {0, 0, -1, 0, errnoFault},
		"subscriptions outside":    {-48, 0, 1, 0, errnoFault},
		"events outside":           {dataAt, page - 31, 1, 0, errnoFault},
		"the number outside":       {dataAt, 0, 1, page - 3, errnoFault},
		"over each other":          {dataAt, dataAt, 2, countAt, 0},
		"events before":            {dataAt, dataAt - 16, 2, countAt, 0},
		"events after":             {dataAt, dataAt + 16, 2, countAt, 0},
		"the number over them":     {dataAt, eventsAt, 2, dataAt + 8, 0},
		"the number over an event": {dataAt, eventsAt, 2, eventsAt + 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, guest{data: ready(1, toWrite, 1) + until(2, monotonic, 0, false), invoke: seq(
				tell(wasi(fnPoll, c.in, c.out, c.n, c.count)), i32(0))}, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, []int32{c.errno}, o.codes())
		})
	}

	t.Run("in place", func(t *testing.T) {
		g := poller(ready(1, toWrite, 1), until(2, monotonic, 1, false), ready(3, toRead, 7))
		g.invoke = seq(drop(wasi(fnPoll, dataAt, dataAt, 3, countAt)), drop(write(abi.StreamOutput, dataAt, 64)), i32(0))
		o := run(t, g, host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, []byte{1, 3, errnoBadf}, []byte{o.stdout[0], o.stdout[32], o.stdout[40]})
	})
	t.Run("fuel", func(t *testing.T) {
		many := guest{invoke: seq(drop(grow(32)), drop(wasi(fnPoll, 0, 0, 40_000, page)), i32(0))}
		o := run(t, many, host.Call{})
		require.NoError(t, o.err)
		require.Greater(t, o.Usage.Fuel, int64(4_000_000))
		o = run(t, many, host.Call{Policy: host.Policy{Fuel: 1_000_000}})
		require.ErrorIs(t, o.err, host.ErrFuel)
	})
}

// TestStopOfPoll: a stop wakes a sleeping guest once, so a program that sleeps again does not
// spin. The end of the call wakes it each time.
func TestStopOfPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		g := poller(until(1, monotonic, uint64(time.Minute), false))
		g.invoke = seq(drop(wasi(fnPoll, subscriptionsAt, eventsAt, 1, countAt)), g.invoke)
		p := pollOf(t, run(t, g, host.Call{Stopping: stop, Policy: host.Policy{Grant: host.Grant{Clock: true}}}))
		require.Equal(t, polled{0, []event{{1, toClock, 0}}, time.Minute}, p)
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		h := newHost(t, nil)
		o := do(ctx, h, compile(t, h, poller(until(1, monotonic, uint64(time.Minute), false)).wasm()), host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.ErrorIs(t, o.err, context.Canceled)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// restoredPoller is a guest that sleeps for half an hour, waits for ten minutes outside its
// code, and then sleeps until an hour.
func restoredPoller() guest {
	const op, request = "messages.receive", `{"wait_ms":600000}`
	g := poller(until(1, monotonic, uint64(time.Hour), true))
	g.resume = seq(nothing, g.invoke)
	g.data += until(2, monotonic, uint64(30*time.Minute), false) + op + request
	g.invoke = seq(drop(wasi(fnPoll, dataAt+48, eventsAt, 1, countAt)),
		drop(seq(i32(dataAt+96), i32(int64(len(op))), i32(dataAt+96+int64(len(op))), i32(int64(len(request))), call(fnStart))), i32(int64(abi.InvokeWaiting)))
	return g
}

// waitsForMessage receives nothing.
func waitsForMessage(ctx context.Context, _ int64, wait time.Duration) ([]host.Message, error) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return nil, nil
}

// lastClock is the time of the guest when it ended.
func lastClock(o outcome) time.Duration {
	return time.Duration(binary.LittleEndian.Uint64([]byte(o.stdout[len(o.stdout)-8:])))
}

// TestPollOfRestored: the time of a clock comes in an instance to which the call was
// restored, whether time is real or stands still.
func TestPollOfRestored(t *testing.T) {
	for _, granted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			h := newHost(t, nil)
			m := compile(t, h, restoredPoller().wasm())
			var r relay
			o := r.do(t.Context(), host.Call{
				Policy:   host.Policy{Timeout: 2 * time.Hour, Grant: host.Grant{Clock: granted}},
				Services: host.Services{Receive: waitsForMessage},
			}, func() (*host.Host, *host.Module) { return h, m })
			require.Equal(t, []event{{1, toClock, 0}}, pollOf(t, o).events)
			require.Equal(t, 2, r.instances)
			if !granted {
				require.Equal(t, time.Hour+time.Microsecond, lastClock(o))
				return
			}
			require.Equal(t, time.Hour, lastClock(o))
			require.Equal(t, time.Hour-time.Second, time.Since(begin), "the clock begins at a second")
		})
	}
}

// TestClockThatIsTakenAway: the monotonic clock does not go back if the call continues
// without the grant.
func TestClockThatIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, restoredPoller().wasm())
		call := host.Call{Policy: host.Policy{Timeout: 2 * time.Hour, Grant: host.Grant{Clock: true}}, Services: host.Services{Receive: waitsForMessage}}
		var kept []byte
		call.Suspend = &keeper{keep: func(k host.SavedState) error { kept = k.State; return nil }}
		require.ErrorIs(t, do(t.Context(), h, m, call).err, host.ErrSuspended)

		call.Suspend, call.Continue, call.Policy.Clock = nil, kept, false
		p := pollOf(t, do(t.Context(), h, m, call))
		require.Less(t, p.passed, 30*time.Minute, "until the hour")
	})
}
