package host_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestFuelIsExact: a call costs the same each time, a budget of exactly that is
// enough, and one unit less is not.
func TestFuelIsExact(t *testing.T) {
	for name, g := range map[string]guest{
		"a loop":       {invoke: seq(times(100_000), i32(0))},
		"host calls":   {invoke: seq(times(5000, drop(write(abi.StreamOutput, 0, 100))), i32(0))},
		"WASI":         {invoke: seq(times(50, drop(wasi(fnRandom, 0, 6400))), i32(0))},
		"no loop":      {invoke: i32(0)},
		"an exit":      {command: seq(times(1000), i32(0), call(fnExit))},
		"a return":     {command: times(1000)},
		"memory":       {invoke: seq(drop(grow(3)), i32(0))},
		"a tool error": {invoke: seq(times(1000), i32(1))},
		"before it":    {start: times(1000), initialize: times(1000)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			fuel := func(budget int64) (int64, outcome) {
				o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Fuel: budget}})
				return o.Usage.Fuel, o
			}
			used, o := fuel(0)
			require.NoError(t, o.err)
			again, _ := fuel(0)
			require.Equal(t, used, again)
			exact, o := fuel(used)
			require.NoError(t, o.err, "a budget of %d units", used)
			require.Equal(t, used, exact)
			if used == 1 {
				return // there is no smaller budget: 0 is the default
			}
			for _, budget := range []int64{1, used / 2, used - 1} {
				less, o := fuel(max(budget, 1))
				require.ErrorIs(t, o.err, host.ErrFuel, "a budget of %d units where %d are needed", budget, used)
				require.Equal(t, max(budget, 1), less)
				require.Equal(t, abi.LimitReached, o.Kind)
				require.Equal(t, abi.LimitFuel, o.Limit)
			}
		})
	}
}

func TestFuelOfAnEndlessLoop(t *testing.T) {
	for name, g := range map[string]guest{
		"invoke":     {invoke: seq(forever(), i32(0))},
		"initialize": {initialize: forever()},
		"start":      {start: forever()},
		"command":    {command: forever()},
		"recursion":  {helper: seq(call(fnHelper), call(fnHelper)), invoke: seq(call(fnHelper), i32(0))},
		"host calls": {invoke: seq(forever(drop(read(abi.FieldTool, 0, 8))), i32(0))},
		"yields":     {invoke: seq(forever(drop(wasi(fnYield))), i32(0))},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, g, host.Call{Policy: host.Policy{Fuel: 1_000_003}})
			require.EqualError(t, o.err, "guest_tool: out of fuel after 1000003 units")
			require.Equal(t, "out of fuel after 1000003 units", o.Error)
			require.EqualValues(t, 1_000_003, o.Usage.Fuel)
			require.Equal(t, abi.LimitFuel, o.Limit)
		})
	}
}

const page = wasmbin.PageSize

func TestMemory(t *testing.T) {
	pages := func(n int64) host.Policy { return host.Policy{Memory: n * page} }
	t.Run("the guest sees a refusal and continues", func(t *testing.T) {
		o := run(t, guest{invoke: seq(tell(grow(2)), tell(grow(2)), tell(grow(1)), tell(grow(1)), i32(0))}, host.Call{Policy: pages(4)})
		require.NoError(t, o.err)
		require.Equal(t, []int32{1, -1, 3, -1}, o.codes())
		require.EqualValues(t, 4*page, o.Usage.MemoryPeak)
	})
	t.Run("a command that handles it and exits with 0", func(t *testing.T) {
		o := run(t, guest{command: seq(drop(grow(100)), i32(0), call(fnExit))}, host.Call{Policy: pages(1)})
		require.NoError(t, o.err)
		require.Equal(t, abi.Success, o.Kind)
	})
	for name, g := range map[string]guest{
		"a trap after a refusal":  {invoke: seq(when(op(wasmbin.OpI32Eq, grow(100), i32(-1)), unreachable()), i32(0))},
		"an exit after a refusal": {command: seq(drop(grow(100)), i32(2), call(fnExit))},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, g, host.Call{Policy: pages(2)})
			require.EqualError(t, o.err, "guest_tool: out of memory: the plugin needs more than the 131072 bytes allowed")
			require.ErrorIs(t, o.err, host.ErrMemory)
			require.Equal(t, abi.LimitMemory, o.Limit)
			require.Equal(t, abi.LimitReached, o.Kind)
		})
	}
	t.Run("another limit after a refusal", func(t *testing.T) {
		o := run(t, guest{invoke: seq(drop(grow(100)), forever(), i32(0))}, host.Call{Policy: host.Policy{Memory: page, Fuel: 1000}})
		require.ErrorIs(t, o.err, host.ErrFuel)
		o = run(t, guest{invoke: seq(drop(grow(100)), drop(write(abi.StreamOutput, 0, 100)), i32(0))}, host.Call{Policy: host.Policy{Memory: page, Output: 10}})
		require.ErrorIs(t, o.err, host.ErrOutput)
	})
	t.Run("more to start with than allowed", func(t *testing.T) {
		o := run(t, guest{change: func(m *wasmbin.Module) { m.Memories[0].Min = 3 }}, host.Call{Policy: pages(2)})
		require.EqualError(t, o.err, "guest_tool: out of memory: the plugin starts with 196608 bytes of memory, but only 131072 are allowed")
		require.Equal(t, abi.LimitMemory, o.Limit)
		require.Zero(t, o.Usage.Fuel)
	})
	t.Run("all there is but a page", func(t *testing.T) {
		h := hostWith(t, host.Config{Memory: 1 << 40})
		m := compile(t, h, guest{invoke: seq(tell(grow(65534)), tell(grow(1)), tell(code{0x3f, 0}), store(host.MaxMemory-4, i32(7)), i32(0))}.wasm())
		for _, limit := range []int64{host.MaxMemory, 4 << 30, 1 << 50} {
			o := do(context.Background(), h, m, host.Call{Policy: host.Policy{Memory: limit}})
			require.NoError(t, o.err)
			require.Equal(t, []int32{1, -1, 65535}, o.codes())
			require.EqualValues(t, uint64(host.MaxMemory), o.Usage.MemoryPeak)
		}
		whole := compile(t, h, guest{change: func(m *wasmbin.Module) { m.Memories[0].Min = 65536 }}.wasm())
		o := do(context.Background(), h, whole, host.Call{Policy: host.Policy{Memory: 4 << 30}})
		require.EqualError(t, o.err, "guest_tool: out of memory: the plugin starts with 4294967296 bytes of memory, but only 4294901760 are allowed")
	})
	t.Run("a maximum of its own", func(t *testing.T) {
		o := run(t, guest{
			invoke: seq(tell(grow(2)), tell(grow(1)), i32(0)),
			change: func(m *wasmbin.Module) { m.Memories[0] = wasmbin.Limits{Min: 1, Max: 2, HasMax: true} },
		}, host.Call{})
		require.Equal(t, []int32{-1, 1}, o.codes())
	})
	t.Run("grown memory is empty and keeps what was there", func(t *testing.T) {
		o := run(t, guest{
			invoke: seq(store(8, i32(7)), drop(grow(1)), store(page, i32(8)), drop(grow(5)), tell(load(i32(8))), tell(load(i32(page))), tell(load(i32(3*page))), i32(0)),
		}, host.Call{})
		require.Equal(t, []int32{7, 8, 0}, o.codes())
	})
}

func TestMemoryOfGo(t *testing.T) {
	h := newHost(t, nil)
	o := do(context.Background(), h, worldPlugin.module(t, h), host.Call{
		Args: []byte(`{"do":"hog","n":4}`), Policy: host.Policy{Memory: 32 << 20},
	})
	require.ErrorIs(t, o.err, host.ErrMemory)
	require.Equal(t, abi.LimitMemory, o.Limit)
	require.LessOrEqual(t, o.Usage.MemoryPeak, int64(32<<20))
}

// TestOutput: all streams count together, what fits is kept, and a guest that
// does not look at the answer is ended.
func TestOutput(t *testing.T) {
	// fdWrite writes the vector at 16, which is the 100 bytes at dataAt.
	fdWrite := func(fd int64) code {
		return seq(store(16, i32(dataAt)), store(20, i32(100)), drop(wasi(fnFDWrite, fd, 16, 1, 24)))
	}
	block := `{"type":"text","text":"` + strings.Repeat("x", 75) + `"}` // 100 bytes
	text := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		write code
		data  string
	}{
		"result":  {drop(write(abi.StreamResult, dataAt, 100)), text},
		"error":   {drop(write(abi.StreamError, dataAt, 100)), text},
		"output":  {drop(write(abi.StreamOutput, dataAt, 100)), text},
		"stderr":  {drop(write(abi.StreamStderr, dataAt, 100)), text},
		"content": {drop(write(abi.StreamContent, dataAt, 100)), block},
		"log":     {drop(write(abi.StreamInfo, dataAt, 100)), text},
		"refused": {drop(write(99, dataAt, 100)), text},
		"fd 1":    {fdWrite(1), text},
		"fd 2":    {fdWrite(2), text},
	} {
		t.Run(name, func(t *testing.T) {
			limit := host.Policy{Output: 350}
			o := run(t, guest{invoke: seq(forever(c.write), i32(0)), data: c.data}, host.Call{Policy: limit})
			require.EqualError(t, o.err, "guest_tool: output limit reached: the plugin wrote more than the 350 bytes allowed")
			require.ErrorIs(t, o.err, host.ErrOutput)
			require.Equal(t, abi.LimitOutput, o.Limit)
			require.EqualValues(t, 300, o.Usage.OutputBytes)
			require.LessOrEqual(t, len(o.stdout)+len(o.stderr), 300)

			for end, invoke := range map[string]code{
				"returns at once":    seq(times(4, c.write), i32(0)),
				"gives an error":     seq(times(4, c.write), i32(1)),
				"exits with 0":       seq(times(4, c.write), i32(0), call(fnExit), i32(0)),
				"exits with 1":       seq(times(4, c.write), i32(1), call(fnExit), i32(0)),
				"traps":              seq(times(4, c.write), unreachable()),
				"computes for a bit": seq(times(4, c.write), times(1000), i32(0)),
			} {
				o = run(t, guest{invoke: invoke, data: c.data}, host.Call{Policy: limit})
				require.ErrorIs(t, o.err, host.ErrOutput, end)
				require.Equal(t, abi.LimitReached, o.Kind, end)
			}

			o = run(t, guest{invoke: seq(times(3, c.write), i32(1)), data: c.data}, host.Call{Policy: host.Policy{Output: 300}})
			require.NoError(t, o.err, "exactly the limit")
			require.EqualValues(t, 300, o.Usage.OutputBytes)
		})
	}
	t.Run("the guest is told", func(t *testing.T) {
		o := run(t, guest{invoke: seq(
			tell(write(abi.StreamStderr, 0, 10)), store(64, write(abi.StreamStderr, 0, 50)), drop(write(abi.StreamOutput, 64, 4)), i32(0),
		)}, host.Call{Policy: host.Policy{Output: 20}})
		require.ErrorIs(t, o.err, host.ErrOutput)
		require.Equal(t, []int32{0}, o.codes(), "nothing is written after a refusal")
	})
}

func TestOutputOfGo(t *testing.T) {
	h := newHost(t, nil)
	o := do(context.Background(), h, worldPlugin.module(t, h), host.Call{
		Args: []byte(`{"do":"out","n":1000,"text":"0123456789"}`), Policy: host.Policy{Output: 1000},
	})
	require.ErrorIs(t, o.err, host.ErrOutput)
	require.Equal(t, abi.LimitOutput, o.Limit)
	require.Equal(t, strings.Repeat("0123456789", 100), o.stdout)
}

// Logs are for the operator, and no plugin fills the disk with them.
func TestLogsAreBounded(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewTextHandler(&log, nil)))
	m := compile(t, h, guest{invoke: seq(times(1000, drop(write(abi.StreamWarn, dataAt, 1000))), i32(0)), data: strings.Repeat("x", 1000)}.wasm())
	o := do(context.Background(), h, m, host.Call{})
	require.NoError(t, o.err)
	require.Less(t, log.Len(), 80<<10)
	require.Equal(t, 65, strings.Count(log.String(), `xxx" `), "65 lines of 1000 bytes in 64 KiB")
	require.Equal(t, 1, strings.Count(log.String(), "the plugin logs too much"))
}

// TestTime asserts how a call ends, not when: each guest here would go on for
// ever.
func TestTime(t *testing.T) {
	for name, c := range map[string]struct {
		guest  guest
		policy host.Policy
	}{
		"computing":                  {guest{invoke: seq(forever(), i32(0))}, host.Policy{}},
		"in start":                   {guest{start: forever()}, host.Policy{}},
		"host calls":                 {guest{invoke: seq(forever(drop(read(abi.FieldTool, 0, 8))), i32(0))}, host.Policy{}},
		"yields":                     {guest{invoke: seq(forever(drop(wasi(fnYield))), i32(0))}, host.Policy{}},
		"sleep":                      {guest{invoke: seq(drop(capability(dataAt, 5, dataAt+5, 20)), i32(0)), data: `sleep{"ms":1000000000000}`}, host.Policy{Grant: host.Grant{Clock: true}}},
		"WASI's sleep":               {guest{invoke: seq(drop(wasi(fnPoll, dataAt, 0, 1, 512)), i32(0)), data: sleepForever}, host.Policy{Grant: host.Grant{Clock: true}}},
		"a sleep that costs no time": {guest{invoke: seq(forever(drop(wasi(fnPoll, dataAt, 0, 1, 512))), i32(0)), data: sleepForever}, host.Policy{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.policy.Fuel, c.policy.Timeout = host.MaxFuel, 10*time.Millisecond
			o := run(t, c.guest, host.Call{Policy: c.policy})
			require.EqualError(t, o.err, "guest_tool: time limit of 10ms reached")
			require.ErrorIs(t, o.err, context.DeadlineExceeded)
			require.NotErrorIs(t, o.err, context.Canceled)
			require.Equal(t, abi.LimitTime, o.Limit)
			require.Equal(t, abi.LimitReached, o.Kind)
			require.Equal(t, "time limit of 10ms reached", o.Error)
		})
	}
}

// sleepForever is a subscription of poll_oneoff to the clock in 200 years.
var sleepForever = "userdata\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x60" + strings.Repeat("\x00", 16)

// Some functions of WASI take long for what they cost, so that each of them
// looks at the time by itself: one slice of fuel is a thousand of these.
func TestSlowFunctionsOfWASI(t *testing.T) {
	o := run(t, guest{
		invoke: seq(drop(grow(1023)), forever(drop(wasi(fnRandom, 0, 64<<20))), i32(0)),
	}, host.Call{Policy: host.Policy{Fuel: host.MaxFuel, Timeout: 50 * time.Millisecond}})
	require.ErrorIs(t, o.err, context.DeadlineExceeded)
	require.Less(t, o.Usage.Fuel, int64(100*(64<<20)/64), "a hundred calls are far more than fit")
}
