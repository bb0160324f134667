package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestCrashes: whatever breaks in a guest ends its call and nothing else.
func TestCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		guest guest
		want  string
	}{
		"unreachable":        {guest{invoke: unreachable()}, "unreachable"},
		"division by zero":   {guest{invoke: op(0x6d, i32(1), i32(0))}, "integer divide by zero"},
		"division overflow":  {guest{invoke: op(0x6d, i32(-1<<31), i32(-1))}, "integer overflow"},
		"no integer":         {guest{invoke: op(0xaa, f64(1e300))}, "integer overflow"},
		"load outside":       {guest{invoke: load(i32(-1))}, "out of bounds memory access"},
		"load past the end":  {guest{invoke: load(i32(page - 3))}, "out of bounds memory access"},
		"store outside":      {guest{invoke: seq(store(page, i32(1)), i32(0))}, "out of bounds memory access"},
		"fill outside":       {guest{invoke: seq(i32(0), i32(1), i32(-1), code{0xfc, 11, 0}, i32(0))}, "out of bounds memory access"},
		"a missing function": {guest{invoke: append(opX(wasmbin.OpCallIndirect, fnYield, i32(5)), 0), change: withTable}, "invalid table access"},
		"a null function":    {guest{invoke: append(opX(wasmbin.OpCallIndirect, fnYield, i32(0)), 0), change: withTable}, "invalid table access"},
		"endless recursion":  {guest{helper: call(fnHelper), invoke: seq(call(fnHelper), i32(0))}, "stack overflow"},
		"start crashes":      {guest{start: unreachable()}, "start function[17] failed: unreachable"},
		"initialize crashes": {guest{initialize: unreachable()}, "unreachable"},
		"a command crashes":  {guest{command: unreachable()}, "unreachable"},
		"data outside": {guest{data: "x", change: func(m *wasmbin.Module) {
			m.Data[0].Offset = append(i32(page), byte(wasmbin.OpEnd))
		}}, "data[0]: out of bounds memory access"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			m := compile(t, h, c.guest.wasm())
			o := do(context.Background(), h, m, host.Call{})
			require.ErrorIs(t, o.err, host.ErrTrap)
			require.ErrorContains(t, o.err, c.want)
			require.NotContains(t, o.err.Error(), "\n")
			require.Equal(t, abi.Internal, o.Kind)
			require.Equal(t, abi.InternalMessage, o.Error)
			require.Nil(t, o.Value)

			again := do(context.Background(), h, m, host.Call{})
			require.EqualError(t, again.err, o.err.Error(), "the host survives, and the module")
			require.Equal(t, o.Usage.Fuel, again.Usage.Fuel)
		})
	}
}

func withTable(m *wasmbin.Module) {
	m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 2}}}}
}

// A poll that its caller cannot have meant is an errno or the end of the call,
// never work without end.
func TestPoll(t *testing.T) {
	o := run(t, guest{invoke: seq(
		tell(wasi(fnPoll, 0, 0, 0, 512)), tell(wasi(fnPoll, 0, 0, 2000, 512)), tell(wasi(fnPoll, 0, 0, 1<<31, 512)), tell(wasi(fnPoll, -1, 0, 1, 512)), tell(wasi(fnPoll, 0, 0, 1, -1)), i32(0),
	)}, host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, []int32{28, 21, 21, 21, 21}, o.codes(), "EINVAL and EFAULT")
}

// Without a tag nothing can be thrown: no compiler emits this.
func TestExceptionsWithoutTagsAreRefused(t *testing.T) {
	const tryTable = 0x1f
	tryAll := seq(code{byte(wasmbin.OpBlock), void, tryTable, void, 1, 2, 0}, code{byte(wasmbin.OpEnd), byte(wasmbin.OpEnd)}, i32(0))
	_, err := newHost(t, nil).Compile(context.Background(), guest{invoke: tryAll}.wasm())
	require.ErrorIs(t, err, host.ErrABI)
	require.ErrorContains(t, err, "exceptions in a module without tags are not supported")
}

func TestExits(t *testing.T) {
	exit := func(code int64) code { return seq(drop(write(abi.StreamStderr, dataAt, 6)), i32(code), call(fnExit)) }
	internal := "guest_tool: the plugin breaks the contract: it exited before it returned a result; its last words: sorry!"
	for name, c := range map[string]struct {
		guest guest
		code  any
		kind  abi.Kind
		text  string // of the result
		err   string
	}{
		"a command, 0":        {guest{command: exit(0)}, nil, abi.Success, "", ""},
		"a command, 1":        {guest{command: exit(1)}, 1, abi.ToolError, "exited with code 1: sorry!", ""},
		"a command, 255":      {guest{command: exit(255)}, 255, abi.ToolError, "exited with code 255: sorry!", ""},
		"a command, canceled": {guest{command: exit(0xffffffff)}, uint32(0xffffffff), abi.ToolError, "exited with code 4294967295: sorry!", ""},
		"a command, deadline": {guest{command: exit(0xefffffff)}, uint32(0xefffffff), abi.ToolError, "exited with code 4026531839: sorry!", ""},
		"a reactor, 0":        {guest{invoke: seq(exit(0), i32(0))}, nil, abi.Internal, abi.InternalMessage, internal},
		"a reactor, 3":        {guest{invoke: seq(exit(3), i32(0))}, 3, abi.ToolError, "exited with code 3: sorry!", ""},
		"initialize, 0":       {guest{initialize: exit(0)}, nil, abi.Internal, abi.InternalMessage, internal},
		"initialize, 3":       {guest{initialize: exit(3)}, 3, abi.ToolError, "exited with code 3: sorry!", ""},
		"start, 0":            {guest{start: exit(0)}, nil, abi.Internal, abi.InternalMessage, internal},
		"start, 3":            {guest{start: exit(3)}, 3, abi.ToolError, "exited with code 3: sorry!", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.guest.data = "sorry!"
			o := run(t, c.guest, host.Call{})
			if c.err == "" {
				require.NoError(t, o.err)
			} else {
				require.EqualError(t, o.err, c.err)
				require.ErrorIs(t, o.err, host.ErrABI)
			}
			require.Equal(t, c.kind, o.Kind)
			require.Equal(t, c.text, o.Error)
			require.Equal(t, "sorry!", o.stderr)
			if c.code == nil {
				require.Nil(t, o.ExitCode)
			} else {
				require.EqualValues(t, c.code, uint32(*o.ExitCode))
			}
			require.Positive(t, o.Usage.Fuel)
		})
	}
}

// What runs before the call runs under its limits.
func TestStartFunctions(t *testing.T) {
	o := run(t, guest{
		start:  drop(write(abi.StreamOutput, dataAt, 1)),
		invoke: seq(drop(write(abi.StreamOutput, dataAt+2, 1)), i32(0)), initialize: drop(write(abi.StreamOutput, dataAt+1, 1)),
		data: "abc",
	}, host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, "abc", o.stdout)

	o = run(t, guest{start: forever(drop(write(abi.StreamOutput, 0, 100)))}, host.Call{Policy: host.Policy{Output: 1000}})
	require.ErrorIs(t, o.err, host.ErrOutput)
	require.EqualValues(t, 1000, o.Usage.OutputBytes)
	// The vector at 16 is the 100 bytes at 0.
	o = run(t, guest{start: seq(store(20, i32(100)), forever(drop(wasi(fnFDWrite, 1, 16, 1, 24))))}, host.Call{Policy: host.Policy{Output: 1000}})
	require.ErrorIs(t, o.err, host.ErrOutput)
	require.Len(t, o.stdout, 1000)
}

func TestDescribe(t *testing.T) {
	ok := `{"abi":"toolhost_v1"}`
	for name, c := range map[string]struct {
		guest guest
		is    error
		want  string // the manifest, or the error
	}{
		"a manifest": {guest{describe: seq(drop(write(abi.StreamManifest, dataAt, 3)), drop(write(abi.StreamManifest, dataAt+3, int64(len(ok))-3)), i32(0)), data: ok}, nil, ok},
		"no export":  {guest{}, host.ErrNoManifest, `export "toolhost_describe": ` + host.ErrNoManifest.Error()},
		"nothing":    {guest{describe: i32(0)}, host.ErrNoManifest, "toolhost_describe: " + host.ErrNoManifest.Error()},
		"a loop":     {guest{describe: seq(forever(), i32(0))}, host.ErrFuel, "toolhost_describe: out of fuel after 500000000 units"},
		"a trap":     {guest{describe: unreachable()}, host.ErrTrap, "toolhost_describe: the plugin crashed: unreachable"},
		"an error":   {guest{describe: i32(1)}, host.ErrABI, "toolhost_describe: the plugin breaks the contract: the tool reported an error without a message"},
		"an exit":    {guest{describe: seq(i32(3), call(fnExit), i32(0))}, host.ErrABI, "toolhost_describe: the plugin breaks the contract: exited with code 3"},
		"exit 0":     {guest{describe: seq(i32(0), call(fnExit), i32(0))}, host.ErrABI, "toolhost_describe: the plugin breaks the contract: it exited before it returned a result"},
		"7":          {guest{describe: i32(7)}, host.ErrABI, "toolhost_describe: the plugin breaks the contract: toolhost_invoke returned 7, expected 0 to 3"},
		"too long":   {guest{describe: seq(forever(drop(write(abi.StreamManifest, 0, page))), i32(0))}, host.ErrOutput, ""},
		"an exit of a command": {guest{command: code{}, describe: seq(drop(write(abi.StreamManifest, dataAt, 1)), i32(0), call(fnExit), i32(0)), data: "{"},
			host.ErrABI, "toolhost_describe: the plugin breaks the contract: it exited before it returned a result"},
		"no end to it": {guest{helper: call(fnHelper), describe: seq(call(fnHelper), i32(0))}, host.ErrTrap, "toolhost_describe: the plugin crashed: stack overflow"},
		"a command":    {guest{command: unreachable(), describe: seq(drop(write(abi.StreamManifest, dataAt, 2)), i32(0)), data: "{}"}, nil, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			manifest, err := h.Describe(context.Background(), c.guest.wasm())
			if c.is == nil {
				require.NoError(t, err)
				require.Equal(t, c.want, string(manifest))
				return
			}
			require.Nil(t, manifest)
			require.ErrorIs(t, err, c.is)
			if c.want != "" {
				require.EqualError(t, err, c.want)
			}
		})
	}
}

// A describe gets no input, and can write only a manifest, or the reason why it has
// no manifest.
func TestDescribeSeesNothing(t *testing.T) {
	h := newHost(t, nil)
	var body code
	for i, c := range []code{
		read(abi.FieldArgs, 0, 8), read(abi.FieldTool, 0, 8), read(abi.FieldContext, 0, 8), read(abi.FieldResponse, 0, 8), read(abi.FieldScript, 0, 8),
		write(abi.StreamResult, 0, 8), write(abi.StreamError, 0, 8), write(abi.StreamOutput, 0, 8), write(abi.StreamStderr, 0, 8),
		write(abi.StreamContent, 0, 8), write(abi.StreamInfo, 0, 8), progress(0, 0, 0, 0), capability(dataAt, 5, 0, 0),
	} {
		body = append(body, store(int64(512+4*i), c)...)
	}
	wasm := guest{describe: seq(body, drop(write(abi.StreamManifest, 512, 52)), i32(0)), data: "sleep"}.wasm()
	manifest, err := h.Describe(context.Background(), wasmbin.AppendCustom(wasm, abi.SectionScript, []byte("print(1)")))
	require.NoError(t, err)
	require.Equal(t, []int32{-1, -1, -1, -1, 8, -2, 0, -2, -2, -2, -2, 0, abi.CallDenied}, outcome{stdout: string(manifest)}.codes())
}
