package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/examples/plugins/script"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
)

type scriptText struct {
	Text string `json:"text"`
}

type scriptWords struct {
	Words int `json:"words"`
}

type scriptFile struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

type scriptFiles struct {
	Files []scriptFile `json:"files"`
	Next  string       `json:"next,omitempty"`
}

// scriptTools are tools of the program that scripts call.
func scriptTools() []gotool.Tool {
	readonly := abi.Hints{Readonly: true}
	return []gotool.Tool{
		{Name: "count", Description: "Counts words.", Hints: readonly, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in scriptText) (scriptWords, error) {
			return scriptWords{len(strings.Fields(in.Text))}, nil
		})},
		{Name: "fails", Description: "Fails.", Hints: readonly, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) {
			return gotool.None{}, errors.New("the file is not there")
		})},
		{Name: "connect", Description: "Needs a connection.", Hints: readonly, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) {
			return gotool.None{}, gotool.ConnectionRequired(abi.Connection{Provider: "acme"})
		})},
		{Name: "picture", Description: "Draws.", Hints: readonly, Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, _ struct{}) (gotool.None, error) {
			return gotool.None{}, c.Content(abi.Block{Type: "text", Text: "a cat"})
		})},
		{Name: "list", Description: "Lists files.", Hints: readonly, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (scriptFiles, error) {
			return scriptFiles{Files: []scriptFile{{Name: "a", Size: 3}, {Name: "b"}}}, nil
		})},
		{Name: "untyped", Description: "Returns anything.", Hints: readonly, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (map[string]int, error) {
			return map[string]int{"a": 1}, nil
		})},
		{Name: "dangerous", Description: "Deletes.", Approval: abi.ApprovalRequired, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) {
			return gotool.None{}, nil
		})},
	}
}

// openScripts opens a service with the plugin exec.
func openScripts(t testing.TB, cfg Config) service {
	t.Helper()
	wasm, err := script.FS.ReadFile("exec.wasm")
	require.NoError(t, err)
	return openFolder(t, scriptConfig(cfg), fstest.MapFS{"exec.wasm": {Data: wasm}})
}

func scriptConfig(cfg Config) Config {
	cfg.CacheDir = plugintest.CacheDir()
	cfg.Grants = map[string]plugins.Grant{"exec": {Clock: true, Ask: true, Tools: []string{abi.EveryTool}}}
	cfg.Tools = append(cfg.Tools, scriptTools()...)
	return cfg
}

func code(text string) json.RawMessage {
	args, _ := json.Marshal(map[string]string{"code": text})
	return args
}

// TestScriptsStartCheaply: each script pays for starting up, so its prelude is not parsed.
func TestScriptsStartCheaply(t *testing.T) {
	s := openScripts(t, Config{})
	r, err := s.Service.Call(t.Context(), Request{Tool: "exec", Args: code(`return 1`)})
	require.NoError(t, err)
	require.Equal(t, "1", string(r.Value))
	require.Less(t, r.Usage.StartupFuel, int64(8_000_000))
}

// TestScripts: what scripts come to, and what those read who write them.
func TestScripts(t *testing.T) {
	s := openScripts(t, Config{})
	for name, c := range map[string]struct{ code, value, err, output string }{
		"a value":                      {code: `return {a: [1, "b", null]}`, value: `{"a":[1,"b",null]}`},
		"no value":                     {code: `const a = 1`},
		"a tool":                       {code: `return (await tools.count({text: "a b c"})).words`, value: `3`},
		"many at once":                 {code: `return (await Promise.all(["a", "a b", "a b c"].map(text => tools.count({text})))).map(r => r.words)`, value: `[1,2,3]`},
		"settled, raced, any":          {code: `const [a, b] = await Promise.allSettled([tools.fails(), tools.count({text: "a"})]); return [a.reason.kind, b.value.words, await Promise.race([sleep(1e6), 1]), await Promise.any([tools.fails(), 2])]`, value: `["tool_error",1,1,2]`},
		"content":                      {code: `return await tools.picture()`, value: `[{"type":"text","text":"a cat"}]`},
		"raw":                          {code: `const r = await tools.fails.raw(); return [r.kind, r.error]`, value: `["tool_error","the file is not there"]`},
		"a caught failure":             {code: `try { await tools.fails() } catch (e) { return [e instanceof ToolError, e.name, e.kind, e.tool, e.message] }`, value: `[true,"ToolError","tool_error","fails","the file is not there"]`},
		"a failure":                    {code: "const a = 1;\nawait tools.fails();", err: "fails: the file is not there (tool_error)\n  line 2: await tools.fails();"},
		"in a function":                {code: "const f = async () =>\n  tools.fails();\nawait f();", err: "fails: the file is not there (tool_error)\n  line 2: tools.fails();"},
		"no such tool":                 {code: `await tools.cuont({text: "a"})`, err: "cuont: no such tool: \"cuont\", did you mean \"count\"? (tool_error)\n  line 1: await tools.cuont({text: \"a\"})"},
		"bad arguments":                {code: `await tools.count({txt: "a"})`, err: "count: the arguments of count do not fit its schema: missing: text; unknown field: txt (tool_error)\n  line 1: await tools.count({txt: \"a\"})"},
		"arguments that are no object": {code: `await tools.count("a b")`, err: "TypeError: tools.count takes one object with its arguments: await tools.count({ … })\n  line 1: await tools.count(\"a b\")"},
		"an agent's tool":              {code: `await tools.spawn_background({tool: "count", args: {}})`, err: "spawn_background: spawn_background is a tool of the agent, which no other tool can call (denied)\n  line 1: await tools.spawn_background({tool: \"count\", args: {}})"},
		"not approved":                 {code: `await tools.dangerous()`, err: "dangerous: "},
		"thrown":                       {code: "\n\nthrow new RangeError('too far', {cause: new Error('tired')})", err: "RangeError: too far\n  line 3: throw new RangeError('too far', {cause: new Error('tired')})\n  cause: Error: tired"},
		"thrown, and no error":         {code: `throw {a: 1}`, err: "the script threw {a: 1}"},
		"thrown, and cannot be shown":  {code: `class E extends Error { get message() { throw 1 } }; throw new E()`, err: "the script threw something that cannot be shown"},
		"TypeScript":                   {code: "interface A { b: string }\nconst f = <T extends A>(a: T): string => a.b as string;\nenum E { X = 3 }\nreturn f({b: 'c'}) + E.X", value: `"c3"`},
		"TypeScript that throws":       {code: "type A = {\n  b: string\n};\nconst a: A = {b: 'x'};\nthrow new Error(a.b);", err: "Error: x\n  line 5: throw new Error(a.b);"},
		"no syntax":                    {code: "const a = 1;\nconst b = ;", err: "SyntaxError: unexpected token in expression: ';'\n  line 2: const b = ;"},
		"a shell command":              {code: `curl https://example.com`, err: "This looks like a shell command. There is no shell here. Write JavaScript, such as:\n  const r = await tools.NAME({ … });\n  return r;"},
		"Python":                       {code: "import os\nprint(os.getcwd())", err: "This looks like Python. Write JavaScript"},
		"a module":                     {code: `const fs = require("fs")`, err: "There are no modules here"},
		"fetch":                        {code: `await fetch("https://example.com")`, err: "There is no network here: find a tool for it with await search('http request')."},
		"a tool as a function":         {code: `await count({text: "a"})`, err: "Tools are called as await tools.count({ … })."},
		"a promise in the result":      {code: `return {a: [tools.count({text: "a"})]}`, err: `TypeError: the result has a promise as "0": await it, or all of a list with await Promise.all(list)`},
		"a BigInt in the result":       {code: `return {a: 1n}`, err: `TypeError: the result has a BigInt as "a": convert it with Number(x) or String(x)`},
		"a circle in the result":       {code: `const a = {}; a.a = a; return a`, err: `TypeError: circular reference`},
		"a function as the result":     {code: `return () => 1`, err: `TypeError: the script returned a function: return data`},
		"a Map in the result":          {code: `return {m: new Map([["a", new Set([1])]])}`, value: `{"m":{"a":[1]}}`},
		"waiting for nothing":          {code: `await new Promise(() => {})`, err: `the script waits for a promise that nothing can resolve`},
		"recursion":                    {code: `const f = () => f(); f()`, err: `RangeError: Maximum call stack size exceeded`},
		"memory":                       {code: `const a = []; for (;;) a.push(new Array(1e5).fill(1))`, err: `InternalError: out of memory`},
		"console":                      {code: `console.log("a", 1, {b: [new Map([[1, 2]]), null]}); console.error(new Error("e"))`, output: "a 1 {b: [Map {1 => 2}, null]}\nError: e\n  line 1: console.log(\"a\", 1, {b: [new Map([[1, 2]]), null]}); console.error(new Error(\"e\"))\n"},
		"not awaited":                  {code: `tools.count({text: "a"}); Promise.reject(new Error("nobody")); return 1`, value: `1`, output: "Not handled: Error: nobody\n  line 1: tools.count({text: \"a\"}); Promise.reject(new Error(\"nobody\")); return 1\n"},
		"handled later":                {code: `const p = Promise.reject(new Error("later")); await sleep(0); try { await p } catch (e) { return e.message }`, value: `"later"`},
		"timers":                       {code: `const seen = []; const i = setInterval(() => { seen.push(seen.length); if (seen.length === 3) clearInterval(i) }, 1); const t = setTimeout(() => seen.push("no"), 1e6); await sleep(1); clearTimeout(t); while (seen.length < 3) await sleep(1); return seen`, value: `[0,1,2]`},
		"broken by itself":             {code: `JSON.stringify = null; Promise = null; Array.prototype.map = null; Object.defineProperty(Object.prototype, "x", {get() { throw 1 }}); return 5`, value: `5`},
		"thenable":                     {code: `return typeof (await tools)`, value: `"object"`},
		"generators":                   {code: `async function* g() { for (const text of ["a", "a b"]) yield (await tools.count({text})).words } const all = []; for await (const n of g()) all.push(n); return all`, value: `[1,2]`},
	} {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			r, _ := s.Service.Call(context.Background(), Request{Tool: "exec", Args: code(c.code), Stdout: &output, Stderr: &output})
			if c.err != "" {
				require.Equal(t, abi.ToolError, r.Kind, r.Error)
				require.Contains(t, r.Error, c.err)
			} else {
				require.Equal(t, abi.Success, r.Kind, r.Error)
				require.Equal(t, c.value, string(r.Value))
			}
			if c.output != "" {
				require.Equal(t, c.output, output.String())
			}
		})
	}
}

// TestScriptsAreCalls: the calls of a script are those of the agent.
func TestScriptsAreCalls(t *testing.T) {
	t.Run("a connection is passed on", func(t *testing.T) {
		s := openScripts(t, Config{})
		r := s.call("a", "exec", string(code(`await tools.connect()`)))
		require.Equal(t, abi.ConnectionRequired, r.Kind)
		require.Equal(t, "acme", r.Connection.Provider)
	})

	t.Run("they are listed, with the call that has made them", func(t *testing.T) {
		s := openScripts(t, Config{})
		require.Equal(t, abi.Success, s.call("a", "exec", string(code(`await Promise.all([1, 2, 3].map(() => tools.count({text: "a"})))`))).Kind)
		latest := s.Figures().Calls(CallQuery{})
		require.Len(t, latest, 4)
		for _, one := range latest[1:] {
			require.Equal(t, []any{"count", "exec", latest[0].CallID}, []any{one.Tool, one.OuterTool, one.OuterID})
		}
	})

	t.Run("a user approves them, and not the script", func(t *testing.T) {
		s := openScripts(t, Config{Approvals: ApprovalPolicy{Ask: true}})
		var asked []HeldCall
		req := Request{Session: "a", Tool: "exec", Args: code(`await tools.dangerous(); return "done"`), Decide: deciding(&asked, abi.AnswerAccept, "once")}
		r, err := s.Service.Call(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, `"done"`, string(r.Value))
		require.Len(t, asked, 1)
		require.Contains(t, asked[0].Question.Message, "Allow dangerous, called by exec?")
	})

	t.Run("scripts that start scripts", func(t *testing.T) {
		s := openScripts(t, Config{})
		r := s.call("a", "exec", string(code(`
			const make = (n) => 'const make = ' + make + '; return ' + n + ' ? await tools.exec({code: make(' + (n - 1) + ')}) : "deepest"';
			return [await tools.exec({code: make(5)}), await tools.exec.raw({code: make(20)})]`)))
		require.Equal(t, abi.Success, r.Kind, r.Error)
		require.Contains(t, string(r.Value), `"deepest"`)
		require.Contains(t, string(r.Value), fmt.Sprintf("at most %d tools can call each other in turn", abi.MaxToolDepth))
	})

	t.Run("too many", func(t *testing.T) {
		s := openScripts(t, Config{})
		r := s.call("a", "exec", string(code(`
			let made = 0;
			try { for (;;) { await Promise.all(Array.from({length: 50}, () => tools.count({text: ""}).then(() => made++))) } } catch (e) { return [made, e.kind, e.message] }`)))
		require.Equal(t, fmt.Sprintf(`[%d,"limit","at most %d calls of tools may begin with one call"]`, abi.MaxToolCalls, abi.MaxToolCalls), string(r.Value))
	})

	t.Run("more than the host takes at a time", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := openScripts(t, Config{})
			r := s.call("a", "exec", string(code(`
				const all = Array.from({length: 3 * 64}, (_, i) => tools.count({text: "a ".repeat(i)}));
				const begun = Date.now();
				let rang;
				setTimeout(() => { rang = Date.now() - begun }, 500);
				await Promise.all(Array.from({length: 200}, () => sleep(1000)));
				const slept = Date.now() - begun;
				return [(await Promise.all(all)).reduce((sum, r) => sum + r.words, 0), rang, slept]`)))
			require.Equal(t, abi.Success, r.Kind, r.Error)
			require.Equal(t, `[18336,500,1000]`, string(r.Value))
		})
	})

	t.Run("timers beside calls", func(t *testing.T) {
		for name, c := range map[string]struct{ code, value string }{
			"a time limit for each call": {`
				const limit = ms => new Promise((_, reject) => setTimeout(() => reject(new Error("timeout")), ms));
				const all = await Promise.allSettled(Array.from({length: 100}, () => Promise.race([tools.count({text: "a b"}), limit(3000)])));
				return [all.filter(r => r.status === "fulfilled").length, Date.now() - begun]`, `[100,0]`},
			"one after the other": {`
				let late = 0;
				for (let i = 0; i < 140; i++) await Promise.race([tools.count({text: "a"}), new Promise((_, reject) => setTimeout(reject, 5000))]).catch(() => late++);
				return [late, Date.now() - begun]`, `[0,0]`},
			"timers that are left": {`
				for (let i = 0; i < 80; i++) setTimeout(() => {}, 4000);
				return [await tools.count({text: "a"}), Date.now() - begun]`, `[{"words":1},0]`},
			"cleared": {`
				Array.from({length: 70}, () => setTimeout(() => {}, 4000)).forEach(clearTimeout);
				return [await tools.count({text: "a"}), Date.now() - begun]`, `[{"words":1},0]`},
			"in the order of their ends": {`
				const seen = [];
				const waits = [300, 100, 200, 100, 50, 0, 400].map((ms, i) => sleep(ms).then(() => seen.push([i, Date.now() - begun])));
				await Promise.all(waits);
				return seen`, `[[5,0],[4,50],[1,100],[3,100],[2,200],[0,300],[6,400]]`},
			"an earlier one, and the first is cleared": {`
				const seen = [];
				const first = setTimeout(() => seen.push("first"), 1000);
				setTimeout(() => seen.push("later", Date.now() - begun), 2000);
				await sleep(500);
				clearTimeout(first);
				setTimeout(() => seen.push("new", Date.now() - begun), 10);
				await sleep(3000);
				return [seen, Date.now() - begun]`, `[["new",510,"later",2000],3500]`},
			"the jobs of one timer run before the next": {`
				let second;
				setTimeout(() => Promise.resolve().then(() => clearTimeout(second)), 10);
				second = setTimeout(() => { throw new Error("not cleared") }, 10);
				await sleep(20);
				return "cleared"`, `"cleared"`},
			"an interval beside calls": {`
				let n = 0;
				const every = setInterval(() => n++, 10);
				await Promise.all(Array.from({length: 200}, () => tools.count({text: "a"})));
				await sleep(55);
				clearInterval(every);
				await sleep(100);
				return [n, Date.now() - begun]`, `[5,155]`},
		} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := openScripts(t, Config{})
					r := s.call("a", "exec", string(code("const begun = Date.now();"+c.code)))
					require.Equal(t, abi.Success, r.Kind, r.Error)
					require.Equal(t, c.value, string(r.Value))
				})
			})
		}
	})

	t.Run("far more", func(t *testing.T) {
		s := openScripts(t, Config{})
		r := s.call("a", "exec", string(code(`
			const all = await Promise.allSettled(Array.from({length: 3000}, () => search("count", 1)));
			const refused = all.filter(r => r.status === "rejected");
			return [refused.length, refused[0].reason]`)))
		require.Equal(t, abi.Success, r.Kind, r.Error)
		require.Equal(t, `[937,{"name":"ToolError","message":"at most 2063 operations can be begun at a time: wait for the end of one","kind":"limit"}]`, string(r.Value))
	})
}

// TestScriptsInTheBackground: a script is spawned, checked and stopped as any tool.
func TestScriptsInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := openScripts(t, Config{})
		id := s.spawn("a", "exec", string(code(`console.log("begun"); await sleep(60000); return (await tools.count({text: "a b"})).words`)))
		time.Sleep(2 * time.Minute)
		require.Equal(t, "succeeded", s.check("a", id, "")["status"])

		id = s.spawn("a", "exec", string(code(`try { await sleep(1e9) } catch (e) { console.log(e.kind); throw e }`)))
		time.Sleep(time.Second)
		s.agent("a", "stop_background", `{"task_id":"`+id+`"}`)
		time.Sleep(time.Minute)
		require.Equal(t, "canceled", s.check("a", id, "")["status"])
	})
}

// TestLongListsAreCheap: what guards the first objects of a value does not read all of it.
func TestLongListsAreCheap(t *testing.T) {
	numbers := gotool.Tool{Name: "numbers", Description: "Lists numbers.", Hints: abi.Hints{Readonly: true}, Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) ([]int, error) {
		return make([]int, 8000), nil
	})}
	s := openScripts(t, Config{Tools: []gotool.Tool{numbers}})
	fuel := func(text, want string) uint64 {
		r, err := s.Service.Call(t.Context(), Request{Tool: "exec", Args: code(text)})
		require.NoError(t, err)
		require.Equal(t, want, string(r.Value))
		return uint64(r.Usage.Fuel)
	}
	base := fuel(`return 1`, `1`)
	require.Less(t, fuel(`return (await tools.numbers()).length`, `8000`)-base, uint64(15_000_000))
}
