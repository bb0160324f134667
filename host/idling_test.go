package host_test

import (
	"encoding/binary"
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

// subscribed are subscriptions of poll_oneoff: to the clock, unless the timeout is
// negative, and to stdin.
func subscribed(timeout time.Duration) string {
	stdin := strings.Repeat("\x00", 8) + "\x01" + strings.Repeat("\x00", 39)
	if timeout < 0 {
		return stdin
	}
	clock := make([]byte, 48)
	clock[16] = 1 // monotonic
	binary.LittleEndian.PutUint64(clock[24:], uint64(timeout))
	return string(clock) + stdin
}

// TestPollOfStdin: what a reactor reads from stdin tells it when it is idle. It polls with
// a timeout, and then reports the number of events, and of each of two reads what it
// returned and the bytes.
func TestPollOfStdin(t *testing.T) {
	const (
		setFlags, getFlags  = fnArgs, fnPrestat
		events, flags, none = 100, 200, "\x00\x00\x00\x00\x00\x00\x00\x00"
		again               = 6
	)
	rename := func(m *wasmbin.Module) {
		m.Imports[setFlags].Name, m.Imports[getFlags].Name = "fd_fdstat_set_flags", "fd_fdstat_get"
	}
	flagsNow := seq(drop(wasi(getFlags, 0, flags)), tell(load(i32(flags))))
	readStdin := seq(store(16, i32(512)), store(20, i32(8)), store(24, i32(0)), tell(wasi(fnFDRead, 0, 16, 1, 24)), tell(load(i32(24))))
	value := seq(drop(write(abi.StreamStderr, 512, 8)))
	const blocking, nonBlocking = 1, 1 | 4<<16 // the type of the file, and above it the flags

	for name, c := range map[string]struct {
		timeout       time.Duration
		clock, starts bool
		events        int32
		reads         []int32 // errno and length, twice
		value         int64
	}{
		"only a look":               {0, true, false, 1, []int32{again, 0, again, 0}, 0},
		"a look with an operation":  {0, true, true, 1, []int32{again, 0, again, 0}, 0},
		"no timer":                  {-1, true, false, 1, []int32{0, 8, 0, 0}, -1},
		"no timer and no clock":     {-1, false, false, 1, []int32{0, 8, 0, 0}, -1},
		"a timer":                   {time.Hour, true, false, 1, []int32{0, 8, 0, 0}, int64(time.Hour)},
		"a timer in 292 years":      {math.MaxInt64, true, false, 1, []int32{0, 8, 0, 0}, 1 << 62},
		"a timer and an operation":  {time.Hour, true, true, 1, []int32{0, 8, 0, 0}, int64(time.Hour)},
		"short":                     {time.Microsecond, true, false, 1, []int32{again, 0, again, 0}, 0},
		"short, with an operation":  {time.Microsecond, true, true, 1, []int32{0, 8, 0, 0}, int64(time.Microsecond)},
		"no clock":                  {time.Hour, false, false, 1, []int32{again, 0, again, 0}, 0},
		"no clock and an operation": {time.Hour, false, true, 1, []int32{0, 8, 0, 0}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			subs := subscribed(c.timeout)
			start := seq()
			if c.starts {
				at := dataAt + int64(len(subs))
				start = drop(seq(i32(at), i32(6), i32(at+6), i32(11), call(fnStart)))
			}
			g := guest{change: rename, resume: code(i32(0)), data: subs + `kv.get{"key":"a"}`, invoke: seq(
				flagsNow, drop(wasi(setFlags, 0, 4)), flagsNow, start,
				drop(wasi(fnPoll, dataAt, 600, int64(len(subs)/48), events)), tell(load(i32(events))),
				readStdin, value, readStdin, i32(0))}
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				m := compile(t, h, g.wasm())
				for range 2 { // a call leaves stdin as it was
					o := do(t.Context(), h, m, host.Call{
						Policy:   host.Policy{Grant: host.Grant{Clock: c.clock, KV: host.KV{Mode: abi.StoreRead}}},
						Services: host.Services{KV: &memoryValues{}},
					})
					require.NoError(t, o.err)
					require.Equal(t, append([]int32{blocking, nonBlocking, c.events}, c.reads...), o.codes())
					if c.reads[1] == 8 {
						require.Equal(t, c.value, int64(binary.LittleEndian.Uint64([]byte(o.stderr))))
					} else {
						require.Equal(t, none, o.stderr)
					}
				}
			})
		})
	}

	t.Run("hostile", func(t *testing.T) {
		hostile := guest{change: rename, data: subscribed(time.Hour), invoke: seq(
			drop(wasi(setFlags, 0, 4)), drop(wasi(fnPoll, -48, 0, 2, events)), drop(wasi(fnPoll, 0, 0, -1, events)),
			drop(wasi(getFlags, 0, -1)), drop(wasi(setFlags, 0, -1)), drop(wasi(setFlags, -1, 4)),
			drop(wasi(setFlags, 0, 4)), store(16, i32(512)), store(20, i32(3)), drop(wasi(fnPoll, dataAt, 600, 2, events)), tell(wasi(fnFDRead, 0, 16, 1, 24)), i32(0))}
		o := run(t, hostile, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.NoError(t, o.err)
		require.Equal(t, []int32{0}, o.codes(), "a buffer that is too small gets a part")
	})

	t.Run("then only a clock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := guest{change: rename, data: subscribed(time.Hour), invoke: seq(
				drop(wasi(setFlags, 0, 4)), drop(wasi(fnPoll, dataAt, 600, 2, events)), // stdin is ready
				drop(wasi(fnPoll, dataAt, 600, 1, events)), tell(load(i32(events))), i32(0))}
			begin := time.Now()
			o := run(t, g, host.Call{Policy: host.Policy{Timeout: 2 * time.Hour, Grant: host.Grant{Clock: true}}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{1}, o.codes())
			require.Equal(t, time.Hour, time.Since(begin))
		})
	})

	t.Run("command", func(t *testing.T) {
		command := guest{change: rename, command: seq(drop(wasi(setFlags, 0, 4)), flagsNow)}
		o := run(t, command, host.Call{Policy: host.Policy{Grant: host.Grant{Clock: true}}})
		require.NoError(t, o.err)
		require.Equal(t, []int32{blocking}, o.codes())
	})
}
