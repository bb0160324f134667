package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// lastWord is where the last word of memory lies.
var lastWord = op(wasmbin.OpI32Sub, op(wasmbin.OpI32Mul, code{0x3f, 0}, i32(page)), i32(4))

// vandal reports what it finds, writes everywhere it can, and then ends as the
// letter in its arguments says.
var vandal = guest{
	initialize: seq(store(600, i32(42)), opX(wasmbin.OpGlobalSet, 1, i32(43)), drop(wasi(fnRandom, 604, 4)), drop(now(616))),
	invoke: seq(
		tell(opX(wasmbin.OpGlobalGet, 0)), tell(opX(wasmbin.OpGlobalGet, 1)), tell(load(i32(600))), tell(load(i32(512))),
		tell(load(i32(dataAt))), tell(load(i32(2054))), tell(code{0x3f, 0}), // memory.size
		drop(wasi(fnRandom, 612, 4)), tell(load(i32(604))), tell(load(i32(612))), drop(now(616)), tell(load(i32(616))),
		tell(op(0xa7, opX(wasmbin.OpGlobalGet, 2))), // i32.wrap_i64
		store(700, i32(0)), store(704, i32(0)), tell(wasi(fnFDWrite, 1, 700, 1, 708)), tell(wasi(fnFDWrite, 2, 700, 1, 708)),
		tell(grow(8)), tell(load(lastWord)),
		call(fnHelper), // what else there is in its mode

		drop(read(abi.FieldArgs, 2048, 64)),
		opX(wasmbin.OpGlobalSet, 0, i32(7)), opX(wasmbin.OpGlobalSet, 1, i32(7)), opX(wasmbin.OpGlobalSet, 2, i64(7)),
		store(512, i32(7)), store(600, i32(7)), store(dataAt, i32(7)),
		op(0x36, lastWord, i32(7)), code{2, 0},

		set(0, append(op(0x2d, i32(2048+6)), 0, 0)), // i32.load8_u
		chosen('e', op(wasmbin.OpReturn, i32(1))), chosen('p', op(wasmbin.OpReturn, i32(2))),
		chosen('n', drop(write(abi.StreamError, 1040, 25)), op(wasmbin.OpReturn, i32(3))),
		chosen('q', op(wasmbin.OpReturn, i32(9))), chosen('t', unreachable()),
		chosen('f', forever()), chosen('x', i32(3), call(fnExit)), chosen('z', i32(0), call(fnExit)),
		chosen('s', drop(progress(0, 1, 0, 0)), forever()), chosen('g', drop(progress(0, 1, 0, 0))),
		chosen('h', drop(progress(0, 1, 0, 0))),
		chosen('o', forever(drop(write(abi.StreamOutput, 0, 4096)))),
		chosen('m', forever(when(op(wasmbin.OpI32Eq, grow(1), i32(-1)), unreachable()))),
		chosen('b', drop(grow(5)), drop(grow(1000))),
		chosen('c', drop(wasi(fnPrestat, 1)), drop(wasi(fnPrestat, 2)), drop(wasi(fnPrestat, 3))), // which is fd_close here
		chosen('a', drop(read(abi.FieldArgs, -1, -1))),
		i32(0),
	),
	data: "datanote........" + `{"provider":"a provider"}`,
	change: func(m *wasmbin.Module) {
		for range 2 {
			m.Globals = append(m.Globals, wasmbin.Global{
				GlobalType: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}, Init: append(i32(0), byte(wasmbin.OpEnd)),
			})
		}
		m.Globals = append(m.Globals, wasmbin.Global{
			GlobalType: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: append(i64(5), byte(wasmbin.OpEnd)),
		})
		m.Imports[fnPrestat].Name, m.Imports[fnPrestat].Type = "fd_close", uint32(len(m.Types))
		m.Types = append(m.Types, sig("i", true))
		m.Imports[fnArgs].Name, m.Imports[fnArgs].Type = "path_open", uint32(len(m.Types))
		m.Types = append(m.Types, sig("iiiiillii", true))
	},
}

// now is clock_time_get of the monotonic clock into memory.
func now(at int64) code { return seq(i32(1), i64(0), i32(at), call(fnClock)) }

// today is clock_time_get of the real time.
func today(at int64) code { return seq(i32(0), i64(0), i32(at), call(fnClock)) }

func chosen(letter rune, body ...code) code {
	return when(op(wasmbin.OpI32Eq, get(0), i32(int64(letter))), body...)
}

// vandalism is the vandal in one mode, with the call and the host that lead
// there.
type vandalism struct {
	guest  guest
	call   host.Call
	mode   host.Mode
	change func(*host.Host)
	count  func(host.Stats) int64 // calls that were served in that way
}

// vandals are the vandal in each mode.
func vandals(t testing.TB) map[string]vandalism {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("a note"), 0o600))
	folder := host.Policy{Grant: host.Grant{Files: []host.Mount{{Dir: dir, Path: "/work"}}}}
	change := func(changes ...func(*wasmbin.Module)) guest {
		g := vandal
		g.change = func(m *wasmbin.Module) {
			for _, f := range append([]func(*wasmbin.Module){vandal.change}, changes...) {
				f(m)
			}
		}
		return g
	}
	// filled is data that is mapped, not copied.
	filled := func(m *wasmbin.Module) {
		m.Memories[0].Min = 8
		m.Data = append(m.Data, wasmbin.Data{Offset: append(i32(4*page-1), byte(wasmbin.OpEnd)), Init: []byte(strings.Repeat("x", 3*page))})
	}
	opened := change(filled)
	opened.helper = seq(store(716, i32(0)), i32(3), i32(0), i32(dataAt+4), i32(4), i32(0), i64(2), i64(0), i32(0), i32(716), call(fnArgs),
		drop(nil), tell(load(i32(716))))
	command := vandal
	command.command, command.invoke = seq(vandal.invoke, drop(nil)), nil
	declared := func(m *wasmbin.Module) {
		m.Elements = []wasmbin.Element{{Mode: wasmbin.Declarative, Type: wasmbin.FuncRef, Funcs: []uint32{fnHelper}}}
	}
	tables, segments := change(withTable, declared), change(withSegments)
	null := code{byte(wasmbin.OpRefNull), byte(wasmbin.FuncRef)}
	tables.helper = seq(
		tell(op(wasmbin.OpRefIsNull, opX(wasmbin.OpTableGet, 0, i32(0)))), tell(opX(wasmbin.OpTableGrow, 0, null, i32(1))),
		opX(wasmbin.OpTableSet, 0, i32(0), code{byte(wasmbin.OpRefFunc)}, wasmbin.AppendU32(nil, fnHelper)),
	)
	segments.helper = seq(
		seq(i32(800), i32(0), i32(4)), code{0xfc, 8, 1, 0}, tell(load(i32(800))), code{0xfc, 9, 1}, // memory.init, data.drop
		seq(i32(0), i32(0), i32(1)), code{0xfc, 12, 0, 0}, code{0xfc, 13, 0}, // table.init, elem.drop
	)
	warm := func(s host.Stats) int64 { return s.Warm }
	restored := func(s host.Stats) int64 { return s.Restored }
	started := func(s host.Stats) int64 { return s.Started }
	blind := func(h *host.Host) { h.Blind() }
	heap := func(h *host.Host) { h.OnHeap() }
	return map[string]vandalism{
		"copied":        {vandal, host.Call{}, host.Reset, nil, warm},
		"pages":         {change(filled), host.Call{}, host.Reset, nil, warm},
		"madvise":       {change(filled), host.Call{}, host.Reset, blind, warm},
		"empty pages":   {change(roomy), host.Call{}, host.Reset, nil, warm},
		"empty madvise": {change(roomy), host.Call{}, host.Reset, blind, warm},
		"heap":          {change(filled), host.Call{}, host.Reset, heap, warm},
		"large heap":    {change(filled, func(m *wasmbin.Module) { m.Memories[0].Min = 30 }), host.Call{}, host.Reset, heap, restored},
		"folder":        {opened, host.Call{Policy: folder}, host.Reset, nil, restored},
		"folder, heap":  {opened, host.Call{Policy: folder}, host.Reset, heap, restored},
		"impure":        {change(filled), host.Call{Traits: host.Traits{ImpureInit: true}}, host.Reset, nil, started},
		"fresh":         {tables, host.Call{}, host.Fresh, nil, started},
		"fresh, heap":   {tables, host.Call{}, host.Fresh, heap, started},
		"segments":      {segments, host.Call{}, host.Fresh, nil, started},
		"command":       {command, host.Call{}, host.Fresh, nil, started},
		"fresh, folder": {opened, host.Call{Traits: host.Traits{ImpureInit: true}, Policy: folder}, host.Reset, nil, started},
	}
}

// roomy has much memory, and little in it.
func roomy(m *wasmbin.Module) { m.Memories[0].Min = 8 }

// withSegments adds a table, a segment of data and one of elements to use there.
func withSegments(m *wasmbin.Module) {
	withTable(m)
	m.Data = append(m.Data, wasmbin.Data{Mode: wasmbin.Passive, Init: []byte("more")})
	m.DataCount = new(uint32(len(m.Data)))
	m.Elements = []wasmbin.Element{{Mode: wasmbin.Passive, Type: wasmbin.FuncRef, Funcs: []uint32{fnHelper}}}
}

// ends are the ways a call of the vandal can end, by its letter, and whether only
// a reactor can.
var ends = []struct {
	name    string
	letter  rune
	kind    abi.Kind
	reactor bool
}{
	{"success", '0', abi.Success, false},
	{"growth", 'b', abi.Success, false},
	{"closed files", 'c', abi.Success, false},
	{"tool error", 'e', abi.ToolError, true},
	{"panic", 'p', abi.Internal, true},
	{"connection", 'n', abi.ConnectionRequired, true},
	{"unknown answer", 'q', abi.Internal, true},
	{"trap", 't', abi.Internal, false},
	{"exit", 'x', abi.ToolError, false},
	{"exit 0", 'z', abi.Internal, true},
	{"exit 0 of a command", 'z', abi.Success, false},
	{"stop", 's', abi.CanceledKind, false},
	{"fuel", 'f', abi.LimitReached, false},
	{"output", 'o', abi.LimitReached, false},
	{"memory", 'm', abi.LimitReached, false},
	{"bad pointer", 'a', abi.Internal, false},
	{"Goexit", 'g', "", false},
	{"panic of the caller", 'h', abi.Internal, false},
}

// TestEveryCallFindsACleanWorld: a plugin that writes everywhere it can, and
// then ends in each way a call can, finds on its next call what it found on its
// first, in each mode.
func TestEveryCallFindsACleanWorld(t *testing.T) {
	for name, v := range vandals(t) {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			if v.change != nil {
				v.change(h)
			}
			m := compile(t, h, v.guest.wasm())
			require.Equal(t, v.mode, m.Isolation.Mode, m.Isolation.Why)
			first := v.look(h, m, '0')
			require.NoError(t, first.err)
			require.Equal(t, []int32{0, 43, 42, 0}, first.codes()[:4])
			require.Zero(t, first.codes()[5], "arguments of no call before")
			require.Equal(t, []int32{0, 0}, first.codes()[11:13], "files are open")
			require.Zero(t, first.codes()[14], "at the end of the grown memory")
			reactor := v.guest.command == nil
			for _, end := range ends {
				if end.reactor && !reactor || reactor && strings.HasSuffix(end.name, "of a command") {
					continue
				}
				t.Run(end.name, func(t *testing.T) {
					for range 2 {
						bad := v.look(h, m, end.letter)
						require.Equal(t, end.kind, bad.Kind, "%v", bad.err)
						if end.letter == 'h' {
							require.EqualError(t, bad.err, "guest_tool: a writer or a function of the caller panicked: the caller")
							require.NotErrorIs(t, bad.err, host.ErrTrap)
						}
						require.Equal(t, first.codes(), bad.codes()[:len(first.codes())])
						again := v.look(h, m, '0')
						require.NoError(t, again.err)
						require.Equal(t, first.codes(), again.codes())
						require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
						require.Equal(t, first.Usage.MemoryPeak, again.Usage.MemoryPeak)
					}
				})
			}
			require.Greater(t, v.count(m.Stats()), int64(len(ends)-4), "the mode was at work: %+v", m.Stats())
		})
	}
}

// look makes a call that ends as the letter says.
func (v vandalism) look(h *host.Host, m *host.Module, letter rune) (o outcome) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := v.call
	req.Args = fmt.Appendf(nil, `{"e":"%c"}`, letter)
	req.Policy.Fuel, req.Policy.Output, req.Policy.Memory = 100_000, 50_000, 48*page
	var stdout strings.Builder
	req.Stdout = &stdout
	req.Progress = func(host.Progress) {
		switch letter {
		case 's':
			cancel()
		case 'g':
			runtime.Goexit()
		case 'h':
			panic("the caller")
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o = do(ctx, h, m, req)
	}()
	<-done
	o.stdout = stdout.String()
	return o
}
