package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// TestPointers: a range that is not all inside the guest's memory ends the
// call, whatever it is for.
func TestPointers(t *testing.T) {
	ranges := map[string][2]int64{
		"one past the end":     {page - 9, 10},
		"from the end":         {page, 1},
		"far outside":          {1 << 30, 1},
		"an overflowing end":   {math.MaxUint32, 2},
		"all but one address":  {1, math.MaxUint32},
		"a negative length":    {0, -1},
		"the largest length":   {0, math.MaxInt32},
		"a negative pointer":   {-1, 1},
		"both negative":        {-page, -page},
		"longer than a memory": {0, page + 1},
	}
	functions := map[string]func(ptr, size int64) code{
		"read":     func(ptr, size int64) code { return read(abi.FieldTool, ptr, size) },
		"absent":   func(ptr, size int64) code { return read(abi.FieldScript, ptr, size) },
		"no field": func(ptr, size int64) code { return read(-7, ptr, size) },
		"write":    func(ptr, size int64) code { return write(abi.StreamResult, ptr, size) },
		"nowhere":  func(ptr, size int64) code { return write(77, ptr, size) },
		"log":      func(ptr, size int64) code { return write(abi.StreamInfo, ptr, size) },
		"content":  func(ptr, size int64) code { return write(abi.StreamContent, ptr, size) },
		"progress": func(ptr, size int64) code { return progress(1, 2, ptr, size) },
		"op":       func(ptr, size int64) code { return capability(ptr, size, 0, 0) },
		"request":  func(ptr, size int64) code { return capability(dataAt, 5, ptr, size) },
	}
	for function, f := range functions {
		for name, r := range ranges {
			t.Run(function+" "+name, func(t *testing.T) {
				o := run(t, guest{invoke: seq(drop(f(r[0], r[1])), drop(write(abi.StreamOutput, 0, 4)), i32(0)), data: "sleep"}, host.Call{})
				require.ErrorIs(t, o.err, host.ErrABI)
				require.Contains(t, o.err.Error(), fmt.Sprintf("was given %d bytes at %d, but its memory ends at 65536", uint32(r[1]), uint32(r[0])))
				require.Equal(t, abi.Internal, o.Kind)
				require.Equal(t, abi.InternalMessage, o.Error)
				require.Empty(t, o.stdout, "the call is over")
			})
		}
	}
}

// TestPointersToNothing: where there is nothing to read, any pointer will do.
func TestPointersToNothing(t *testing.T) {
	for _, ptr := range []int64{0, page - 1, page, page + 1, -1, math.MinInt32} {
		o := run(t, guest{invoke: seq(
			tell(read(abi.FieldTool, ptr, 0)), tell(read(abi.FieldScript, ptr, 0)), tell(write(abi.StreamOutput, ptr, 0)),
			tell(progress(0, 0, ptr, 0)), tell(capability(ptr, 0, ptr, 0)), i32(0),
		)}, host.Call{})
		require.NoError(t, o.err, "pointer %d", ptr)
		require.Equal(t, []int32{4, abi.Absent, 0, 0, abi.CallUnknown}, o.codes())
	}
}

func TestTheEndOfMemory(t *testing.T) {
	o := run(t, guest{invoke: seq(
		tell(read(abi.FieldTool, page-4, 4)), drop(write(abi.StreamOutput, page-4, 4)), tell(read(abi.FieldTool, page-2, 2)), i32(0),
	)}, host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, "\x04\x00\x00\x00tool\x04\x00\x00\x00", o.stdout)
}

func TestProgress(t *testing.T) {
	long := strings.Repeat("x", 511) + "é"
	for name, c := range map[string]struct {
		done, total float64
		message     string
		code        int32
		want        string
	}{
		"ordinary":            {1, 2, "reading", 0, "reading"},
		"unknown total":       {1, -1, "", 0, ""},
		"more than the total": {3, 2, "", 0, ""},
		"negative zero":       {math.Copysign(0, -1), 0, "", 0, ""},
		"NaN":                 {math.NaN(), 1, "", abi.RefusedProgress, ""},
		"NaN total":           {1, math.NaN(), "", abi.RefusedProgress, ""},
		"infinite":            {math.Inf(1), 1, "", abi.RefusedProgress, ""},
		"infinite total":      {1, math.Inf(1), "", abi.RefusedProgress, ""},
		"less than nothing":   {1, math.Inf(-1), "", abi.RefusedProgress, ""},
		"negative":            {-1, 1, "", abi.RefusedProgress, ""},
		"not UTF-8":           {1, 1, "a\xff", abi.RefusedProgress, ""},
		"cut between runes":   {1, 1, long, 0, strings.Repeat("x", 511) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, guest{invoke: seq(tell(progress(c.done, c.total, dataAt, int64(len(c.message)))), i32(0)), data: c.message}, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, []int32{c.code}, o.codes())
			if c.code != 0 {
				require.Empty(t, o.progress)
				return
			}
			require.Equal(t, []host.Progress{{Done: c.done, Total: c.total, Message: c.want}}, o.progress)
		})
	}
}

func TestNumbersNobodyGave(t *testing.T) {
	o := run(t, guest{invoke: seq(
		tell(read(5, 0, 8)), tell(read(-1, 0, 8)), tell(read(math.MaxInt32, 0, 8)), tell(read(abi.FieldResponse, 0, 8)),
		tell(write(6, 0, 8)), tell(write(7, 0, 0)), tell(write(12, 0, 0)), tell(write(-1, 0, 0)), tell(write(math.MinInt32, 0, 0)),
		tell(write(abi.StreamManifest, 0, 0)), i32(0),
	)}, host.Call{})
	require.NoError(t, o.err)
	require.Equal(t, []int32{-1, -1, -1, -1, -2, -2, -2, -2, -2, -2}, o.codes())
}

func TestCapabilities(t *testing.T) {
	for name, c := range map[string]struct {
		op, request string
		policy      host.Policy
		code        int32
		response    string
	}{
		"not granted":      {"secret.exists", `{}`, host.Policy{}, abi.CallDenied, `{"code":"denied","message":"no secret goes into the requests of this plugin: have the operator name one in a rule of its http grant"}`},
		"misspelled":       {"kv.gett", `{}`, host.Policy{}, abi.CallUnknown, `{"code":"unknown","message":"this host has no such capability, did you mean \"kv.get\"?"}`},
		"unknown":          {"teleportation", `{}`, host.Policy{}, abi.CallUnknown, `{"code":"unknown","message":"this host has no such capability"}`},
		"not UTF-8":        {"\xff\xfe", "\xff", host.Policy{}, abi.CallUnknown, `{"code":"unknown","message":"this host has no such capability"}`},
		"a huge name":      {strings.Repeat("sleep", 1000), ``, host.Policy{Grant: host.Grant{Clock: true}}, abi.CallUnknown, `{"code":"unknown","message":"this host has no such capability"}`},
		"sleep, no clock":  {"sleep", `{"ms":1}`, host.Policy{}, abi.CallDenied, `{"code":"denied","message":"sleep needs the clock, which is not granted to this plugin: have the operator grant it, or name it in the plugin's needs"}`},
		"sleep":            {"sleep", `{"ms":0}`, host.Policy{Grant: host.Grant{Clock: true}}, 2, `{}`},
		"sleep, negative":  {"sleep", `{"ms":-1}`, host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
		"sleep, no number": {"sleep", `{"ms":"1"}`, host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
		"sleep, too large": {"sleep", `{"ms":1e99}`, host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
		"sleep, nothing":   {"sleep", ``, host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
		"sleep, not UTF-8": {"sleep", "\xff", host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
		"sleep, deep":      {"sleep", strings.Repeat("[", 50_000), host.Policy{Grant: host.Grant{Clock: true}}, abi.CallInvalid, `{"code":"invalid","message":"expected {\"ms\": milliseconds}"}`},
	} {
		t.Run(name, func(t *testing.T) {
			n, size := int64(len(c.op)), int64(len(c.request))
			o := run(t, guest{data: c.op + c.request, invoke: seq(
				tell(capability(dataAt, n, dataAt+n, size)), set(0, read(abi.FieldResponse, dataAt, 512)),
				i32(int64(abi.StreamResult)), i32(dataAt), get(0), call(fnWrite), op(wasmbin.OpDrop), i32(0),
			)}, host.Call{Policy: c.policy})
			require.NoError(t, o.err)
			require.Equal(t, []int32{c.code}, o.codes())
			require.JSONEq(t, c.response, string(o.Value))
		})
	}
}

// TestAnswers: what a guest may answer, and what becomes of what it may not.
func TestAnswers(t *testing.T) {
	answer := func(s abi.Stream, text string, code int64) guest {
		return guest{invoke: seq(drop(write(s, dataAt, int64(len(text)))), i32(code)), data: text}
	}
	value := func(s string) abi.Result { return abi.Result{Kind: abi.Success, Value: []byte(s)} }
	toolError := func(s string) abi.Result { return abi.Result{Kind: abi.ToolError, Error: s} }
	internal := abi.Result{Kind: abi.Internal, Error: abi.InternalMessage}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for name, c := range map[string]struct {
		guest guest
		want  abi.Result
		err   string
	}{
		"nothing":                {guest{}, abi.Result{Kind: abi.Success}, ""},
		"JSON":                   {answer(abi.StreamResult, " { \"a\" : [ 1 ] } \n", 0), value(`{"a":[1]}`), ""},
		"null":                   {answer(abi.StreamResult, "null", 0), value("null"), ""},
		"half of JSON":           {answer(abi.StreamResult, `{"a":`, 0), internal, "the plugin breaks the contract: the result is not JSON in UTF-8"},
		"two values":             {answer(abi.StreamResult, "1 2", 0), internal, "the plugin breaks the contract: the result is not JSON in UTF-8"},
		"not UTF-8":              {answer(abi.StreamResult, "\"\xff\"", 0), internal, "the plugin breaks the contract: the result is not JSON in UTF-8"},
		"spaces":                 {answer(abi.StreamResult, "  ", 0), internal, "the plugin breaks the contract: the result is not JSON in UTF-8"},
		"far too deep":           {answer(abi.StreamResult, deep, 0), internal, "the plugin breaks the contract: the result is not JSON in UTF-8"},
		"an error":               {answer(abi.StreamError, " no such city \n", 1), toolError("no such city"), ""},
		"an error without text":  {guest{invoke: i32(1)}, toolError("the tool reported an error without a message"), ""},
		"an error, not UTF-8":    {answer(abi.StreamError, "caf\xe9", 1), toolError("caf\uFFFD"), ""},
		"a long error":           {answer(abi.StreamError, strings.Repeat("é", 5000), 1), toolError(strings.Repeat("é", 4096) + "…"), ""},
		"an error with a result": {answer(abi.StreamResult, "{", 1), toolError("the tool reported an error without a message"), ""},
		"a panic":                {answer(abi.StreamError, "index out of range", 2), internal, "the plugin crashed: it panicked: index out of range"},
		"a silent panic":         {guest{invoke: i32(2)}, internal, "the plugin crashed: it panicked: without a message"},
		"a connection": {answer(abi.StreamError, `{"provider":"github"}`, 3), abi.Result{
			Kind: abi.ConnectionRequired, Error: "connect github first", Connection: &abi.Connection{Provider: "github"},
		}, ""},
		"an invalid connection":       {answer(abi.StreamError, `{`, 3), internal, "the plugin breaks the contract: not a connection"},
		"a connection to nothing":     {answer(abi.StreamError, `{"provider":""}`, 3), internal, "the plugin breaks the contract: not a connection: provider is empty"},
		"a connection and more":       {answer(abi.StreamError, `{"provider":"x","token":"y"}`, 3), internal, "the plugin breaks the contract: not a connection"},
		"a connection without a text": {guest{invoke: i32(3)}, internal, "the plugin breaks the contract: not a connection"},
		"7":                           {guest{invoke: i32(7)}, internal, "the plugin breaks the contract: toolhost_invoke returned 7, expected 0 to 3"},
		"-1":                          {guest{invoke: i32(-1)}, internal, "the plugin breaks the contract: toolhost_invoke returned -1, expected 0 to 3"},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, c.guest, host.Call{})
			if c.err == "" {
				require.NoError(t, o.err)
			} else {
				require.ErrorContains(t, o.err, "guest_tool: "+c.err)
			}
			o.Usage = abi.Usage{}
			require.Equal(t, c.want, o.Result)
		})
	}
}

func TestContent(t *testing.T) {
	block := func(s string) (code, string) { return tell(write(abi.StreamContent, dataAt, int64(len(s)))), s }
	for text, want := range map[string]int32{
		`{"type":"text","text":"x"}`: 0, `{"type":"text"}`: 0, `{"type":"text","text":"x"`: -3, "": -3, "null": -3, "[]": -3,
		"{\"type\":\"text\",\"text\":\"\xff\"}": -3, `{"type":"video"}`: -3, `{"type":"image","data":"%"}`: -3,
		`{"type":"text","text":"x"} {}`: -3, strings.Repeat(`{"a":`, 10_000): -3,
	} {
		write, data := block(text)
		o := run(t, guest{invoke: seq(write, i32(0)), data: data}, host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, []int32{want}, o.codes(), "%.80q", text)
		require.Len(t, o.Content, 1+int(want)/3)
	}
	write, data := block(`{"type":"text","text":"x"}`)
	o := run(t, guest{invoke: seq(times(300, write), i32(1)), data: data}, host.Call{})
	require.Equal(t, abi.ToolError, o.Kind)
	require.Len(t, o.Content, 256)
	require.EqualValues(t, 256, len(o.codes())-strings.Count(o.stdout, "\xfd\xff\xff\xff"))
}

// TestExportedState: the host takes what it needs by name, and nothing a guest
// exports beside it changes that.
func TestExportedState(t *testing.T) {
	o := run(t, guest{invoke: seq(opX(wasmbin.OpGlobalSet, 0, i64(1)), opX(wasmbin.OpGlobalSet, 0, i64(-1<<63)), times(1000), i32(0)), change: func(m *wasmbin.Module) {
		m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: append(i64(7), byte(wasmbin.OpEnd))}}
		m.Tables = []wasmbin.Table{{TableType: wasmbin.TableType{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}}
		for name, e := range map[string]wasmbin.Export{
			"counter": {Kind: wasmbin.KindGlobal}, "": {Kind: wasmbin.KindGlobal}, "refill": {Kind: wasmbin.KindTable}, "stdout": {Kind: wasmbin.KindMemory},
		} {
			e.Name = name
			m.Exports = append(m.Exports, e)
		}
	}}, host.Call{Policy: host.Policy{Fuel: 100_000}})
	require.NoError(t, o.err)
	require.Less(t, o.Usage.Fuel, int64(100_000))
}

// What broke inside is for the operator: the log has all of it.
func TestTheOperatorSeesWhatBroke(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewTextHandler(&log, nil)))
	m := compile(t, h, guest{helper: unreachable(), invoke: seq(call(fnHelper), i32(0))}.wasm())
	o := do(context.Background(), h, m, host.Call{ID: "call-7"})
	require.ErrorIs(t, o.err, host.ErrTrap)
	require.Equal(t, abi.InternalMessage, o.Error)
	for _, want := range []string{"the plugin broke", "plugin=guest", "tool=tool", "call=call-7", "unreachable", "trace="} {
		require.Contains(t, log.String(), want)
	}
	var callErr *host.CallError
	require.ErrorAs(t, o.err, &callErr)
	require.Contains(t, callErr.Trace, "()", "a frame")
}
