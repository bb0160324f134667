package host_test

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

const extismModule = "extism:host/env"

// extismSigs are the functions of Extism's kernel with their parameters and results.
var extismSigs = []struct{ name, params, results string }{
	{"alloc", "l", "l"}, {"free", "l", ""}, {"length", "l", "l"}, {"length_unsafe", "l", "l"},
	{"load_u8", "l", "i"}, {"load_u64", "l", "l"}, {"store_u8", "li", ""}, {"store_u64", "ll", ""},
	{"input_offset", "", "l"}, {"input_length", "", "l"}, {"input_load_u8", "l", "i"}, {"input_load_u64", "l", "l"},
	{"output_set", "ll", ""}, {"error_set", "l", ""}, {"config_get", "l", "l"}, {"var_get", "l", "l"}, {"var_set", "ll", ""},
	{"http_request", "ll", "l"}, {"http_status_code", "", "i"}, {"http_headers", "", "l"}, {"get_log_level", "", "i"},
	{"log_trace", "l", ""}, {"log_debug", "l", ""}, {"log_info", "l", ""}, {"log_warn", "l", ""}, {"log_error", "l", ""},
}

// kernel calls a function of the kernel.
func kernel(name string, args ...code) code {
	i := slices.IndexFunc(extismSigs, func(s struct{ name, params, results string }) bool { return s.name == name })
	return seq(seq(args...), call(uint32(i)))
}

// extismGuest is a hand-made plugin of Extism: what its exports do, each with three locals of
// type i64 and a result.
type extismGuest struct {
	exports map[string]code
	change  func(*wasmbin.Module)
}

func (g extismGuest) wasm() []byte {
	types := func(params string) (list []wasmbin.ValType) {
		return sig(params, false).Params
	}
	m := &wasmbin.Module{Memories: []wasmbin.Limits{{Min: 1}}}
	m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportMemory, Kind: wasmbin.KindMemory})
	for i, s := range extismSigs {
		m.Types = append(m.Types, wasmbin.FuncType{Params: types(s.params), Results: types(s.results)})
		m.Imports = append(m.Imports, wasmbin.Import{Module: extismModule, Name: s.name, Type: uint32(i)})
	}
	for name, body := range g.exports {
		m.Exports = append(m.Exports, wasmbin.Export{Name: name, Index: uint32(len(m.Imports) + len(m.Codes))})
		m.Functions = append(m.Functions, uint32(len(m.Types)))
		result := name != abi.ExportInitialize && name != abi.ExportStart && name != "hs_init" && name != "__wasm_call_ctors"
		t := sig("", result)
		if name == "hs_init" {
			t = sig("ii", false)
		}
		m.Types = append(m.Types, t)
		m.Codes = append(m.Codes, wasmbin.Code{Locals: []wasmbin.LocalGroup{{Count: 4, Type: wasmbin.I64}}, Body: append(slices.Clone(body), byte(wasmbin.OpEnd))})
	}
	if g.change != nil {
		g.change(m)
	}
	return m.Encode()
}

// tool is a plugin whose export tool does what is given, and returns 0 after it.
func extismTool(body ...code) extismGuest {
	return extismGuest{exports: map[string]code{"tool": seq(seq(body...), i32(0))}}
}

// text is an expression for a block with that text; it uses local 1.
func text(s string) code {
	c := set(1, kernel("alloc", i64(int64(len(s)))))
	for i := range len(s) {
		c = seq(c, kernel("store_u8", op(wasmbin.OpI64Add, get(1), i64(int64(i))), i32(int64(s[i]))))
	}
	return seq(c, get(1))
}

// output makes a block the output; it uses local 2.
func output(block code) code {
	return seq(set(2, block), kernel("output_set", get(2), kernel("length", get(2))))
}

func callExtism(t *testing.T, g extismGuest, req host.Call) outcome {
	t.Helper()
	h := newHost(t, nil)
	return do(t.Context(), h, compile(t, h, g.wasm()), req)
}

func TestExtismAnswers(t *testing.T) {
	template := "{who}!"
	for name, c := range map[string]struct {
		body []code
		req  host.Call
		want string
	}{
		"nothing":            {nil, host.Call{}, `""`},
		"a text":             {[]code{output(text("hello\n"))}, host.Call{}, `"hello\n"`},
		"JSON":               {[]code{output(text(`{"a": 1}`))}, host.Call{}, `{"a":1}`},
		"bytes":              {[]code{output(text("a\xff"))}, host.Call{}, `"a�"`},
		"a part of a block":  {[]code{set(2, text("abcdef")), kernel("output_set", op(wasmbin.OpI64Add, get(2), i64(2)), i64(3))}, host.Call{}, `"cde"`},
		"an empty range":     {[]code{kernel("output_set", i64(0), i64(0))}, host.Call{}, `""`},
		"what is there last": {[]code{output(text("abc")), kernel("store_u8", get(2), i32('x'))}, host.Call{}, `"xbc"`},
		"the arguments":      {[]code{output(kernel("input_offset"))}, host.Call{Args: []byte(`{"who":"Ada"}`)}, `{"who":"Ada"}`},
		"a template":         {[]code{output(kernel("input_offset"))}, host.Call{Args: []byte(`{"who":"Ada"}`), Traits: host.Traits{Input: &template}}, `"Ada!"`},
		"the setting":        {[]code{output(kernel("config_get", text("key")))}, host.Call{Policy: host.Policy{Grant: host.Grant{Config: map[string]string{"key": "value"}}}}, `"value"`},
		"no setting":         {[]code{output(kernel("config_get", text("key")))}, host.Call{}, `""`},
		"a variable":         {[]code{kernel("var_set", text("v"), text("1")), output(kernel("var_get", text("v")))}, host.Call{}, `1`},
		"another value":      {[]code{kernel("var_set", text("v"), text("1")), kernel("var_set", text("v"), text("22")), output(kernel("var_get", text("v")))}, host.Call{}, `22`},
		"a deleted variable": {[]code{kernel("var_set", text("v"), text("1")), kernel("var_set", text("v"), i64(0)), output(kernel("var_get", text("v")))}, host.Call{}, `""`},
		"free twice":         {[]code{set(0, text("ab")), kernel("free", get(0)), kernel("free", get(0)), drop(text("cd")), drop(text("ef")), output(get(0))}, host.Call{}, `"cd"`},
		"a freed input":      {[]code{kernel("free", kernel("input_offset")), output(kernel("input_offset"))}, host.Call{}, `""`},
		"64 bits": {[]code{set(0, kernel("alloc", i64(8))), kernel("store_u64", get(0), kernel("input_load_u64", i64(0))),
			kernel("store_u8", get(0), i32('[')), drop(kernel("load_u64", get(0))), output(get(0))}, host.Call{Args: []byte(`{"a":[]}`)}, `"[\"a\":[]}"`},
		"beyond the input": {[]code{set(0, kernel("alloc", i64(8))), kernel("store_u64", get(0), kernel("input_load_u64", i64(1))),
			kernel("store_u8", get(0), op(wasmbin.OpI32Add, i32('0'), kernel("input_load_u8", i64(1<<40)))), output(get(0))}, host.Call{Args: []byte(`{"a":[]}`)}, `"0\u0000\u0000\u0000\u0000\u0000\u0000\u0000"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := callExtism(t, extismTool(c.body...), c.req)
			require.NoError(t, o.err)
			require.Equal(t, abi.Success, o.Kind, o.Error)
			require.Equal(t, c.want, string(o.Value))
		})
	}
}

func TestExtismErrors(t *testing.T) {
	failing := func(result int64, body ...code) extismGuest {
		return extismGuest{exports: map[string]code{"tool": seq(seq(body...), i32(result))}}
	}
	for name, c := range map[string]struct {
		guest extismGuest
		want  string
	}{
		"a code":               {failing(3), "the function tool returned 3"},
		"a negative one":       {failing(-1), "the function tool returned -1"},
		"an error":             {failing(0, kernel("error_set", text("no such city"))), "no such city"},
		"an error and a code":  {failing(1, kernel("error_set", text("no such city")), output(text("what"))), "no such city"},
		"a code and an output": {failing(1, output(text("what is wrong"))), "what is wrong"},
		"an invalid request":   {failing(0, drop(kernel("http_request", text("{"), i64(0)))), "the plugin made an http request that is not valid: unexpected end of JSON input"},
		"no grant":             {failing(0, drop(kernel("http_request", text(`{"url":"https://example.com/a","method":"get"}`), i64(0)))), "GET https://example.com/a is refused: no http rule of the plugin admits this URL"},
	} {
		t.Run(name, func(t *testing.T) {
			o := callExtism(t, c.guest, host.Call{})
			require.NoError(t, o.err)
			require.Equal(t, abi.ToolError, o.Kind)
			require.Contains(t, o.Error, c.want)
		})
	}

	t.Run("an error that is taken back", func(t *testing.T) {
		o := callExtism(t, failing(0, kernel("error_set", text("no")), kernel("error_set", i64(0))), host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, abi.Success, o.Kind)
	})
}

func TestExtismHostile(t *testing.T) {
	small := host.Policy{Memory: 1 << 20, Fuel: 1_000_000_000, Output: 64 << 10}
	for name, c := range map[string]struct {
		body code
		want error
		say  string
	}{
		"load outside":              {drop(kernel("load_u8", i64(1<<20))), host.ErrABI, "load_u8 was given the offset 1048576, which is outside"},
		"load of nothing":           {drop(kernel("load_u8", i64(0))), host.ErrABI, "offset 0"},
		"load what the kernel has":  {seq(drop(text("a")), drop(kernel("load_u64", i64(8)))), host.ErrABI, "offset 8"},
		"load across the end":       {seq(set(0, text("12345678")), drop(kernel("load_u64", op(wasmbin.OpI64Add, get(0), i64(2))))), host.ErrABI, "load_u64"},
		"store far outside":         {kernel("store_u64", i64(math.MinInt64), i64(1)), host.ErrABI, "store_u64"},
		"store at the last address": {kernel("store_u64", i64(-1), i64(1)), host.ErrABI, "store_u64"},
		"store a byte outside":      {kernel("store_u8", i64(-1), i32(1)), host.ErrABI, "store_u8"},
		"output outside":            {seq(set(0, text("ab")), kernel("output_set", get(0), i64(9))), host.ErrABI, "output_set"},
		"output that overflows":     {seq(set(0, text("ab")), kernel("output_set", get(0), i64(-1))), host.ErrABI, "output_set"},
		"a giant block":             {kernel("store_u8", kernel("alloc", i64(1<<40)), i32(1)), host.ErrMemory, "more than the 1048576 bytes allowed"},
		"a negative block":          {kernel("store_u8", kernel("alloc", i64(-1)), i32(1)), host.ErrMemory, "more than the 1048576 bytes allowed"},
		"endless blocks":            {forever(kernel("store_u8", kernel("alloc", i64(1)), i32(1))), host.ErrMemory, "more than the 1048576 bytes allowed"},
		"endless blocks, freed":     {forever(kernel("free", kernel("alloc", i64(1000)))), host.ErrFuel, ""},
		"endless variables": {forever(set(0, op(wasmbin.OpI64Add, get(0), i64(1))), set(1, kernel("alloc", i64(8))), kernel("store_u64", get(1), get(0)),
			kernel("var_set", get(1), kernel("alloc", i64(100)))), host.ErrMemory, "the variables of the plugin have more than 1048576 bytes"},
		"a large variable":  {forever(kernel("var_set", text("v"), kernel("alloc", i64(900_000))), kernel("var_set", text("w"), kernel("alloc", i64(900_000)))), host.ErrMemory, "variables"},
		"endless log":       {forever(kernel("log_info", text("again and again"))), host.ErrOutput, ""},
		"too much output":   {output(kernel("alloc", i64(100<<10))), host.ErrOutput, ""},
		"too long an error": {kernel("error_set", kernel("alloc", i64(100<<10))), host.ErrOutput, ""},
		"endless loads":     {seq(set(0, text("a")), forever(drop(kernel("load_u8", get(0))))), host.ErrFuel, ""},
		"endless lengths":   {forever(drop(kernel("length", i64(77)))), host.ErrFuel, ""},
		"endless errors":    {forever(kernel("error_set", i64(77))), host.ErrFuel, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := callExtism(t, extismTool(c.body), host.Call{Policy: small})
			require.ErrorIs(t, o.err, c.want)
			require.ErrorContains(t, o.err, c.say)
			require.LessOrEqual(t, o.Usage.MemoryPeak, int64(2*small.Memory))
		})
	}

	t.Run("a large input", func(t *testing.T) {
		o := callExtism(t, extismTool(drop(kernel("input_length"))), host.Call{Policy: small, Args: []byte(`"` + strings.Repeat("a", 2<<20) + `"`)})
		require.ErrorIs(t, o.err, host.ErrMemory)
	})

	t.Run("a block that is not there is no crash", func(t *testing.T) {
		o := callExtism(t, extismTool(drop(kernel("alloc", i64(1<<40))), output(text("went on"))), host.Call{Policy: small})
		require.NoError(t, o.err)
		require.Equal(t, `"went on"`, string(o.Value))
	})
}

// TestExtismIsClean: nothing of a call is there in the next one, and what is done at
// start-up is done once.
func TestExtismIsClean(t *testing.T) {
	// It answers with what a new block has, the value of v, and what is in its memory; and
	// leaves something in all of them.
	g := extismGuest{exports: map[string]code{
		abi.ExportInitialize: append(op(0x36, i32(0), i32('i')), 2, 0), // i32.store
		"tool": seq(
			set(0, kernel("alloc", i64(8))), output(get(0)), kernel("store_u8", get(0), load(i32(0))),
			kernel("store_u8", op(wasmbin.OpI64Add, get(0), i64(1)), op(wasmbin.OpI32Add, i32('0'), kernel("load_u8", op(wasmbin.OpI64Add, get(0), i64(7))))),
			drop(kernel("var_get", text("v"))), kernel("store_u8", op(wasmbin.OpI64Add, get(0), i64(7)), i32('z')), kernel("var_set", text("v"), text("1")),
			append(op(0x36, i32(0), i32('j')), 2, 0), i32(0)),
	}}
	h := newHost(t, nil)
	m := compile(t, h, g.wasm())
	for range 3 {
		o := do(t.Context(), h, m, host.Call{})
		require.NoError(t, o.err)
		require.Equal(t, `"i0\u0000\u0000\u0000\u0000\u0000z"`, string(o.Value))
	}
	require.Equal(t, int64(1), m.Stats().Started)
	require.Equal(t, host.Reset, m.Isolation.Mode)
}

func TestExtismStartsUp(t *testing.T) {
	say := func(c rune) code { // appends to the memory of the plugin
		return seq(append(op(0x36, load(i32(0)), i32(int64(c))), 2, 4), append(op(0x36, i32(0), op(wasmbin.OpI32Add, load(i32(0)), i32(1))), 2, 0))
	}
	all := seq(set(0, kernel("alloc", i64(4))), output(get(0)))
	for i := range int64(4) {
		all = seq(all, kernel("store_u8", op(wasmbin.OpI64Add, get(0), i64(i)), load(i32(4+i))))
	}
	for name, c := range map[string]struct {
		exports  []string
		function string
		want     string
	}{
		"no start-up":           {nil, "tool", ""},
		"reactor":               {[]string{"_initialize"}, "tool", "i"},
		"constructors":          {[]string{"__wasm_call_ctors"}, "tool", "c"},
		"both":                  {[]string{"_initialize", "__wasm_call_ctors"}, "tool", "i"},
		"Haskell":               {[]string{"hs_init"}, "tool", "h"},
		"Haskell as reactor":    {[]string{"_initialize", "hs_init"}, "tool", "ih"},
		"a program, never run":  {[]string{"_start"}, "tool", ""},
		"a program that is run": {[]string{"_start", "__wasm_call_ctors"}, "_start", "s"},
	} {
		t.Run(name, func(t *testing.T) {
			g := extismGuest{exports: map[string]code{"tool": seq(all, i32(0))}}
			for _, export := range c.exports {
				letter := map[string]rune{"_initialize": 'i', "__wasm_call_ctors": 'c', "hs_init": 'h', "_start": 's'}[export]
				g.exports[export] = say(letter)
			}
			if c.function == "_start" {
				g.exports["_start"] = seq(say('s'), all)
			}
			h := newHost(t, nil)
			m := compile(t, h, g.wasm())
			for range 2 {
				o := do(t.Context(), h, m, host.Call{Traits: host.Traits{Function: c.function}})
				require.NoError(t, o.err)
				require.Equal(t, c.want, strings.TrimRight(strings.ReplaceAll(string(o.Value[1:len(o.Value)-1]), `\u0000`, ""), "\x00"))
			}
		})
	}

	t.Run("from an input", func(t *testing.T) { // which no other call may start from
		g := extismGuest{exports: map[string]code{
			abi.ExportInitialize: append(op(0x36, i32(0), kernel("input_load_u8", i64(0))), 2, 0),
			"tool":               seq(set(0, kernel("alloc", i64(1))), kernel("store_u8", get(0), load(i32(0))), output(get(0)), i32(0)),
		}}
		h := newHost(t, nil)
		m := compile(t, h, g.wasm())
		for _, input := range []string{"a", "b"} {
			o := do(t.Context(), h, m, host.Call{Traits: host.Traits{Input: &input}})
			require.Equal(t, `"`+input+`"`, string(o.Value))
		}
		require.Contains(t, m.Stats().Startup, "it calls extism:host/env while it starts up")
	})
}

func TestExtismLog(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	g := extismTool(kernel("log_trace", text("t")), kernel("log_debug", text("d")), kernel("log_info", text("i")), kernel("log_warn", text("w")), kernel("log_error", text("e\x1b")))
	o := do(t.Context(), h, compile(t, h, g.wasm()), host.Call{})
	require.NoError(t, o.err)
	require.Empty(t, o.stdout+o.stderr)
	for _, line := range []string{`level=DEBUG msg="guest | t"`, `level=DEBUG msg="guest | d"`, `level=INFO msg="guest | i"`, `level=WARN msg="guest | w"`, `level=ERROR msg="guest | e`} {
		require.Contains(t, log.String(), line)
	}
}

func TestExtismHTTP(t *testing.T) {
	s := newWebServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to", http.StatusFound)
			return
		}
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		w.WriteHeader(http.StatusTeapot)
		echoes(w, r)
	})
	fetch := func(request, body string, then code) outcome {
		content := i64(0)
		if body != "" {
			content = text(body)
		}
		g := extismTool(set(0, content), set(2, kernel("http_request", text(strings.ReplaceAll(request, "SERVER", s.URL)), get(0))), then)
		return do(t.Context(), s.host, compile(t, s.host, g.wasm()), host.Call{Traits: host.Traits{Plugin: "guest"}, Tool: "tool", Policy: granting(s.rule("/to", "*"), s.rule("/from"))})
	}
	answer := seq(kernel("output_set", get(2), kernel("length", get(2))))

	o := fetch(`{"url":"SERVER/to","method":"post","headers":{"x-own":"own"}}`, "body\xff", answer)
	require.NoError(t, o.err)
	require.Equal(t, `"HTTP/1.1 /to own body�"`, string(o.Value))

	o = fetch(`{"url":"SERVER/from"}`, "", answer)
	require.Contains(t, string(o.Value), "HTTP/1.1 /to", "it follows redirects")

	o = fetch(`{"url":"SERVER/to"}`, "", seq(set(0, kernel("alloc", i64(1))), output(get(0)),
		kernel("store_u8", get(0), op(wasmbin.OpI32Sub, kernel("http_status_code"), i32(418-'!')))))
	require.Equal(t, `"!"`, string(o.Value))

	o = fetch(`{"url":"SERVER/to"}`, "", output(kernel("http_headers")))
	require.Contains(t, string(o.Value), `"x-two":"1,2"`)

	o = fetch(`{"url":"SERVER/elsewhere"}`, "", answer)
	require.NoError(t, o.err)
	require.Equal(t, abi.ToolError, o.Kind)
	require.Contains(t, o.Error, "the operator can allow it below grants.guest with")
}

func TestExtismRefusals(t *testing.T) {
	rename := func(module, name string) []byte {
		return extismGuest{exports: map[string]code{"tool": i32(0)}, change: func(m *wasmbin.Module) {
			m.Imports[0].Module, m.Imports[0].Name = module, name
			if module != extismModule { // (i64, i64) -> ()
				m.Imports[0].Type = 7
			}
		}}.wasm()
	}
	for name, c := range map[string]struct {
		wasm []byte
		want string
	}{
		"a misspelled function":  {rename(extismModule, "aloc"), `import "extism:host/env.aloc": extism:host/env has no such function, did you mean "alloc"?`},
		"a wrong type":           {rename(extismModule, "free"), `import "extism:host/env.free": expected the type (i64) -> (), found (i64) -> i64`},
		"a function of its host": {rename("extism:host/user", "lookup"), `import "extism:host/user.lookup": this is a function of the host that the plugin was built for, and this host has only those of hyper-mcp there`},
		"another module":         {rename("lib", "lookup"), `import "lib.lookup": a plugin may import from toolhost_v1 and wasi_snapshot_preview1 only`},
		"no function":            {extismGuest{}.wasm(), `module: it imports from extism:host/env, and exports no function that Extism could call: one without parameters that returns an i32 or nothing`},
		"hs_init of another type": {extismGuest{exports: map[string]code{"tool": i32(0)}, change: func(m *wasmbin.Module) { m.Exports[1].Name = "hs_init" }}.wasm(),
			`export "hs_init": expected the type (i32, i32) -> (), found () -> i32`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newHost(t, nil).Compile(t.Context(), c.wasm)
			require.EqualError(t, err, c.want)
			require.ErrorIs(t, err, host.ErrABI)
		})
	}

	t.Run("a function that it lacks", func(t *testing.T) {
		o := callExtism(t, extismTool(), host.Call{Traits: host.Traits{Function: "tol"}})
		require.ErrorIs(t, o.err, host.ErrABI)
		require.ErrorContains(t, o.err, `no function "tol" without parameters, did you mean "tool"?`)
	})
}
