package server

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/fulltest"
)

// TestHostileScripts: no script traps. One that fails says why, unless the reason is its
// fuel.
func TestHostileScripts(t *testing.T) {
	fulltest.Only(t, "takes half a minute")
	s := openScripts(t, Config{})
	for name, c := range map[string]struct{ code, err string }{
		"a getter that throws in the result":   {`return {get a() { throw new Error("no") }}`, "no"},
		"a getter that throws in console":      {`console.log({get a() { throw 1 }}); return 1`, ""},
		"toJSON that throws":                   {`return {toJSON() { throw null }}`, "the script threw null"},
		"toJSON for ever":                      {`const o = {toJSON() { return {o} }}; return o`, "out of fuel"},
		"a Proxy as the result":                {`return new Proxy({a: 1}, {})`, ""},
		"a Proxy that throws":                  {`return new Proxy({}, {get() { throw 5 }, ownKeys() { throw 6 }, getPrototypeOf() { throw 7 }})`, "the script threw 5"},
		"a Proxy that is thrown":               {`throw new Proxy({}, {get() { throw 5 }, ownKeys() { throw 6 }, getPrototypeOf() { throw 7 }})`, "cannot be shown"},
		"a revoked Proxy":                      {`const {proxy, revoke} = Proxy.revocable({}, {}); revoke(); throw proxy`, "cannot be shown"},
		"a revoked Proxy as the result":        {`const {proxy, revoke} = Proxy.revocable({}, {}); revoke(); return {proxy}`, "TypeError"},
		"a thenable as the result":             {`return {then(ok) { ok(3) }}`, ""},
		"a thenable that throws":               {`return {then() { throw new Error("then") }}`, "then"},
		"a thenable that never ends":           {`return {then() {}}`, "nothing can resolve"},
		"deep JSON":                            {`let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return a`, "out of fuel"},
		"deep console":                         {`let a = []; for (let i = 0; i < 1e5; i++) a = [a]; console.log(a)`, ""},
		"wide console":                         {`console.log(Array(1e6).fill(0), new Uint8Array(1e6), Object.fromEntries(Array.from({length: 1e4}, (_, i) => [i, {}])))`, ""},
		"a deep expression":                    {"return " + strings.Repeat("(", 90000) + "1" + strings.Repeat(")", 90000), "RangeError"},
		"a deep array":                         {"return " + strings.Repeat("[", 90000) + strings.Repeat("]", 90000), "RangeError"},
		"deep TypeScript":                      {"const a: number = " + strings.Repeat("(", 90000) + "1", "line 1"},
		"deep types":                           {"let a: " + strings.Repeat("Array<", 25000) + "1" + strings.Repeat(">", 25000), "line 1"},
		"deep templates":                       {"return " + strings.Repeat("`${", 30000) + "1" + strings.Repeat("}`", 30000), "RangeError"},
		"deep functions":                       {"return " + strings.Repeat("()=>", 49000) + "1", ""},
		"a deep pattern":                       {`return new RegExp("(".repeat(1e5) + ")".repeat(1e5)).test("a")`, "SyntaxError"},
		"a pattern that backtracks in depth":   {`return /^(?:a?)*$/.test("a".repeat(1e6) + "b")`, ""},
		"a long chain of else":                 {strings.Repeat("if (0) {} else ", 13000) + ";", ""},
		"many arguments":                       {`return Math.max(...Array(1e6).fill(1))`, "RangeError"},
		"recursion in getters":                 {`const o = {get a() { return this.a }}; return o.a`, "RangeError"},
		"recursion in a Proxy":                 {`const p = new Proxy({}, {get(t, k, r) { return r[k] }}); return p.a`, "RangeError"},
		"recursion that calls tools":           {`const f = () => { try { f() } finally { tools.count({text: "a"}).catch(() => {}) } }; f()`, ""},
		"recursion that rejects":               {`const f = () => { try { f() } catch { Promise.reject(new Error("x")); } }; f(); return 1`, ""},
		"recursion in prepareStackTrace":       {`Error.prepareStackTrace = (e) => new Error().stack; throw new Error("x")`, ""},
		"a stack that throws":                  {`Error.prepareStackTrace = () => { throw new Error("y") }; await tools.count({text: "a"})`, ""},
		"a stack that is an object":            {`Error.prepareStackTrace = () => ({toString() { throw 1 }}); await tools.fails()`, ""},
		"no room: strings":                     {`let a = "x"; for (;;) a += a`, ""},
		"no room: many small objects":          {`const a = []; for (;;) a.push({})`, "out of memory"},
		"no room: closures":                    {`let f = () => 1; for (;;) { const g = f; f = () => g }`, "out of memory"},
		"no room: promises":                    {`const a = []; for (;;) a.push(new Promise(() => {}))`, "out of memory"},
		"no room: rejections":                  {`for (;;) Promise.reject(new Error("x"))`, "out of fuel"},
		"no room: caught again and again":      {`const a = []; for (let i = 0; i < 50; i++) try { for (;;) a.push({}) } catch {}; return a.length`, ""},
		"no room: at the result":               {`globalThis.a = []; try { for (;;) a.push("x" + a.length) } catch {}; return a`, ""},
		"no room: as it waits":                 {`globalThis.a = []; try { for (;;) a.push({}) } catch {}; await sleep(1); return 1`, ""},
		"no room: at a tool":                   {`globalThis.a = []; try { for (;;) a.push({}) } catch {}; try { await tools.count({text: "a"}) } catch (e) { a = null; return String(e) }`, ""},
		"no room: at console":                  {`globalThis.a = []; try { for (;;) a.push({}) } catch {}; console.log(a, "abc")`, ""},
		"no room: in jobs":                     {`globalThis.a = []; const f = () => { a.push(new Array(100).fill(0)); return Promise.resolve().then(f) }; await f()`, ""},
		"no room: at a timer":                  {`globalThis.a = []; try { for (;;) a.push({}) } catch {}; setTimeout(() => {}, 1); await sleep(2)`, ""},
		"no room: buffers":                     {`const a = []; for (;;) a.push(new ArrayBuffer(1 << 20))`, ""},
		"no room: one buffer":                  {`return new ArrayBuffer(2 ** 31).byteLength`, ""},
		"no room: an array":                    {`return new Array(2 ** 32 - 1).fill(0)`, ""},
		"no room: padding":                     {`return "".padEnd(2 ** 29, "abc")`, ""},
		"no room: arguments of a tool":         {`return await tools.count({text: "x".repeat(2e7)})`, ""},
		"a large argument of console":          {`console.log("x".repeat(2e7)); return 1`, ""},
		"a large result":                       {`return "x".repeat(2e7)`, ""},
		"a lone surrogate":                     {`return "\ud800"`, ""},
		"a lone surrogate in a name":           {`await tools["\ud800"]({})`, ""},
		"a NUL in a name":                      {`await tools["a\0b"]({})`, ""},
		"an empty name":                        {`await tools[""]({})`, ""},
		"a long name":                          {`await tools["x".repeat(1e6)]({})`, ""},
		"a symbol as a name":                   {`await tools[Symbol.iterator]({})`, "TypeError"},
		"arguments with a circle":              {`const a = {}; a.a = a; await tools.count(a)`, "circular"},
		"arguments with a BigInt":              {`await tools.count({text: 1n})`, "BigInt"},
		"arguments that are a Proxy":           {`await tools.count(new Proxy({}, {ownKeys() { throw new Error("keys") }}))`, "keys"},
		"arguments with toJSON":                {`await tools.count({toJSON() { return 5 }})`, ""},
		"arguments that become nothing":        {`await tools.count({toJSON() {}})`, ""},
		"no stringify":                         {`JSON.stringify = () => 5; return (await tools.count({text: "a"})).words`, ""},
		"no prototypes":                        {`for (const c of [Array, Map, Promise, String, RegExp, Object, Function, Error]) for (const k of Reflect.ownKeys(c.prototype)) try { delete c.prototype[k] } catch {}; throw new Error("x")`, ""},
		"no iterators":                         {`delete Array.prototype[Symbol.iterator]; Promise.reject(new Error("x")); return 1`, ""},
		"setters on Object.prototype":          {`for (const k of ["code", "stream", "text", "reason", "resolve", "op", "0", "1"]) Object.defineProperty(Object.prototype, k, {get() { throw 1 }, set() { throw 2 }, configurable: true}); await sleep(1); return 1`, ""},
		"a then of promises that throws":       {`Promise.prototype.then = () => { throw new Error("then") }; await tools.count({text: "a"}); return 1`, ""},
		"a constructor of promises":            {`Object.defineProperty(Promise.prototype, "constructor", {get() { throw new Error("c") }}); await tools.count({text: "a"}); return 1`, ""},
		"frozen":                               {`for (const k of Reflect.ownKeys(globalThis)) try { Object.freeze(globalThis[k]); Object.freeze(globalThis[k].prototype) } catch {}; Object.freeze(globalThis); await sleep(1); return 1`, ""},
		"callers of the prelude":               {`const all = []; Error.prepareStackTrace = (e, sites) => { for (const s of sites) try { all.push(s.getFunction?.()) } catch {} return "" }; try { tools.count(1n) } catch {}; for (const f of all) if (typeof f === "function") for (const a of [[], [1], [{}, {}, {}], [Symbol(), Symbol(), Symbol()], [0, 1e9], [2], [3, 1, 2]]) try { await f(...a) } catch {}; return all.length`, "out of fuel"},
		"a job that queues itself, with sleep": {`let n = 0; const f = () => { if (n++ < 1e5) queueMicrotask(f) }; f(); await sleep(1); return n`, ""},
		"sleep with nonsense":                  {`for (const ms of [NaN, -1, Infinity, "x", {}, null, undefined, 1e300, 2 ** 53]) { const p = sleep(ms); if (ms === Infinity || ms > 1e6) p.catch(() => {}); else await p } return 1`, ""},
		"sleep with a symbol":                  {`await sleep(Symbol())`, "TypeError"},
		"timers with nonsense":                 {`for (const ms of [NaN, -1, Infinity, "x", {}, null, 1n]) try { clearTimeout(setTimeout(() => {}, ms)) } catch {}; clearTimeout("constructor"); clearTimeout({}); clearTimeout(-1); return 1`, ""},
		"a timer that throws":                  {`setTimeout(() => { throw new Error("t") }, 1); await sleep(5); return 1`, ""},
		"a million operations":                 {`const all = []; for (let i = 0; i < 1e6; i++) { const p = sleep(1); p.catch(() => {}); if (i < 100) all.push(p) } return (await Promise.allSettled(all)).length`, ""},
		"a million rejections":                 {`for (let i = 0; i < 2e4; i++) Promise.reject(i); return 1`, ""},
		"a million errors":                     {`throw new AggregateError(Array(1e5).fill(new Error("x".repeat(1e3))), "all")`, ""},
		"causes in a circle":                   {`const e = new Error("x"); e.cause = e; throw e`, ""},
		"a long message":                       {`throw new Error("x".repeat(1e7))`, ""},
		"a long line":                          {"/*" + strings.Repeat("x", 190000) + "*/ throw new Error('y')", "y"},
		"many lines":                           {strings.Repeat("\n", 190000) + "throw new Error('y')", "line 190001"},
		"an end of the function":               {"}); throw new Error('out'); (async function () {", ""},
		"an end of a comment":                  {"return 1 //", ""},
		"an open comment":                      {"return 1 /*", "SyntaxError"},
		"a NUL":                                {"return 1\x00", "SyntaxError"},
		"only spaces":                          {"  \n ", ""},
		"dynamic import":                       {`await import("fs")`, "modules"},
		"eval":                                 {`return eval("1 + 1")`, ""},
		"import.meta":                          {`return import.meta`, "SyntaxError"},
		"a worker":                             {`new Worker("x")`, ""},
		"Atomics.wait":                         {`Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9)`, ""},
		"finalizers":                           {`const r = new FinalizationRegistry(() => { throw new Error("f") }); for (let i = 0; i < 1e4; i++) r.register({}, i); await sleep(1); return 1`, ""},
		"weak references":                      {`const w = new WeakRef({}); await sleep(1); return typeof w.deref()`, ""},
		"generators for ever in console":       {`console.log((function* () { for (;;) yield 1 })())`, ""},
		"iterators for ever":                   {`console.log(Object.assign(new Map(), {[Symbol.iterator]: function* () { for (let i = 0; ; i++) yield [i, i] }}))`, ""},
		"a class with hostile names":           {`class A { static get name() { throw 1 } }; console.log(A, new A(), {constructor: {get name() { throw 1 }}}); return 1`, ""},
		"asking with nonsense":                 {`const all = []; for (const a of [[], [Symbol.iterator], [{}], ["x", 5], ["x", {type: "nonsense"}], ["x".repeat(1e6)]]) try { await ask(...a) } catch (e) { all.push(e.name) } return all`, ""},
		"progress with nonsense":               {`for (const a of [[], [NaN], [1, -1], [1e300, 1e300, {}], ["a", "b", "c"], [1, 2, "x".repeat(1e6)], [Symbol()]]) try { progress(...a) } catch {} return 1`, ""},
		"search with nonsense":                 {`for (const a of [[], [Symbol()], [{}], ["x".repeat(1e6)]]) try { await search(...a) } catch {} return 1`, ""},
		"blanks in the last statement":         {"const a = 1;\n'a" + strings.Repeat(" ", 60000) + "b'.length", ""},
		"blanks before the last statement":     {"const a = 1;" + strings.Repeat(" \n", 60000) + "a", ""},
		"blanks in a function":                 {"async function main() {" + strings.Repeat(" ", 60000) + "}", ""},
		"canceled by itself":                   {`clearTimeout(1); const t = setTimeout(() => {}, 1e9); clearTimeout(t); clearTimeout(t); await sleep(1); return 1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fuel := int64(50_000_000_000)
			if c.err == "out of fuel" {
				fuel = 1_000_000_000
			}

			var output bytes.Buffer
			r, err := s.Service.Call(context.Background(), Request{Tool: "exec", Args: code(c.code), Stdout: &output, Stderr: &output, Limits: Limits{Fuel: fuel}})
			if c.err == "out of fuel" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Less(t, len(r.Error), 10_000)
			require.Less(t, output.Len(), 30_000_000)
			require.NotContains(t, r.Error, "without a message")
			if c.err == "" {
				require.Contains(t, []abi.Kind{abi.Success, abi.ToolError}, r.Kind)
				return
			}
			require.Equal(t, abi.ToolError, r.Kind)
			require.Contains(t, r.Error, c.err)
		})
	}
}

// TestScriptsWithoutMemory: what is left is enough to say so, whatever the limit.
func TestScriptsWithoutMemory(t *testing.T) {
	s := openScripts(t, Config{})
	const fill = `globalThis.last = null; try { for (;;) last = {last} } catch {}; `
	for _, text := range []string{
		`const a = []; for (;;) a.push({})`,
		`globalThis.last = null; for (;;) last = {last}`,
		fill + `await sleep(1)`,
		fill + `await tools.count({text: "a"})`,
		fill + `console.log("a"); return {a: "x".repeat(1e5)}`,
		fill + `Promise.reject(new Error("x")); return {a: [{}]}`,
		fill + `throw new Error("memory")`,
	} {
		for _, mib := range []int64{2, 3, 16, 0} {
			r, err := s.Service.Call(context.Background(), Request{Tool: "exec", Args: code(text), Limits: Limits{Fuel: 50_000_000_000, Memory: mib << 20}})
			require.NoError(t, err, text)
			require.NotContains(t, r.Error, "without a message", text)
			if r.Kind != abi.Success {
				require.Equal(t, abi.ToolError, r.Kind, text)
				require.Contains(t, r.Error, "memory", text)
			}
		}
	}
}

// TestScriptsAsModelsSendThem: scripts in the forms that models know from elsewhere, and
// mistakes whose place must be the author's.
func TestScriptsAsModelsSendThem(t *testing.T) {
	s := openScripts(t, Config{})
	for name, c := range map[string]struct{ code, value, err, output string }{
		"a fence":                       {code: "```js\nreturn 1\n```\n", value: "1"},
		"a fence of TypeScript":         {code: "\n```typescript\nconst a: number = 1;\nreturn a\n```", value: "1"},
		"the lines of a fence":          {code: "```\nconst a = 1;\nthrow new Error('x')\n```", err: "line 3: throw new Error('x')"},
		"an arrow function":             {code: "async () => {\n  return (await tools.count({text: 'a b'})).words;\n};\n", value: "2"},
		"an arrow function of a value":  {code: "() => ({a: 1})", value: `{"a":1}`},
		"a function":                    {code: "async function main() {\n  return 5\n}", value: "5"},
		"a function without a name":     {code: "async function () { return 5 }", value: "5"},
		"a function in TypeScript":      {code: "async () => {\n  const a: number = 1;\n  return a;\n}", value: "1"},
		"the lines of a function":       {code: "async () => {\n  throw new Error('x');\n}", err: "Error: x\n  line 2: throw new Error('x');"},
		"a function that is called":     {code: "async function main() { return 5 }\nreturn await main()", value: "5"},
		"a function that calls itself":  {code: "return (async () => 6)()", value: "6"},
		"a mistake after types":         {code: "const a: number = 1;\nconst b = 2;\nconst c = ;", err: "line 3: const c = ;"},
		"a mistake after other types":   {code: "interface A { b: string }\nconst b = 2;\nif (b { return 1 }", err: "line 3: if (b { return 1 }"},
		"a mistake before types":        {code: "const c = ;\nconst a: number = 1;", err: "line 1: const c = ;"},
		"a mistake far in a long line":  {code: strings.Repeat("const a = 1; ", 1) + "/*" + strings.Repeat("-", 300) + "*/ a.b.c(); return " + strings.Repeat("1 + ", 100) + "1", err: "line 1, column 3"},
		"a long line, cut around it":    {code: strings.Repeat("void 0; ", 60) + "nothing.here(); " + strings.Repeat("void 0; ", 60), err: "void 0; nothing.here(); void 0;"},
		"import()":                      {code: "const fs = await import('node:fs')", err: "There are no modules here"},
		"import":                        {code: "import fs from 'fs';\nreturn fs", err: "There are no modules here"},
		"import {}":                     {code: "import {readFile} from 'fs';\nreturn readFile", err: "There are no modules here"},
		"export":                        {code: "export default async function () {}", err: "There are no modules here"},
		"export in a shell":             {code: "export A=b", err: "This looks like a shell command"},
		"ls":                            {code: "ls -la", err: "This looks like a shell command"},
		"a name that is not defined":    {code: "const a = 1;\nreturn b + a", err: "ReferenceError: b is not defined\n  line 2: return b + a"},
		"lines of Windows":              {code: "let s = 0;\r\nfor (const a of [1, 2, 3])\r\nconsole.log(s += a)\r\n", output: "1\n3\n6\n"},
		"the column of a last value":    {code: "const a = 1;\n['" + strings.Repeat("y", 200) + "'].map(x => x.foo.bar)", err: "line 2, column 215: "},
		"the column of a value":         {code: "const a = 1;\nreturn ['" + strings.Repeat("y", 200) + "'].map(x => x.foo.bar)", err: "line 2, column 222: "},
		"a method of what is undefined": {code: "return lodash.map([], 1)", err: "ReferenceError: lodash is not defined\n  line 1: return lodash.map([], 1)"},
		"a long message":                {code: "throw new Error('x'.repeat(5000))", err: "x… (5007 characters)"},
		"a long name of a tool":         {code: "await tools['x'.repeat(5000)]()", err: "characters"},
		"no memory":                     {code: "const a = []; for (;;) a.push(new Array(1e5).fill(1))", err: "A script has 48 MiB at most: keep less at a time."},
		"many rejections":               {code: "for (let i = 0; i < 1000; i++) Promise.reject(i); return 1", value: "1", output: "Not handled: the script threw 19\nNot handled: 980 more\n"},
		"many rejections, handled":      {code: "const all = []; for (let i = 0; i < 1000; i++) all.push(Promise.reject(i)); await sleep(1); await Promise.allSettled(all); return 1", value: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			r, _ := s.Service.Call(context.Background(), Request{Tool: "exec", Args: code(c.code), Stdout: &output, Stderr: &output})
			if c.err != "" {
				require.Equal(t, abi.ToolError, r.Kind, r.Error)
				require.Contains(t, r.Error, c.err)
				return
			}
			require.Equal(t, abi.Success, r.Kind, r.Error)
			require.Equal(t, c.value, string(r.Value))
			if c.output == "" {
				require.Empty(t, output.String())
			}
			require.Contains(t, output.String(), c.output)
		})
	}
}
