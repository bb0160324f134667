// Package python_test calls the plugins in Python of this folder. toolhost test plays their examples.
package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// loaded is a plugin, and what its calls are granted.
type loaded struct {
	host   *host.Host
	module *host.Module
	policy host.Policy
	stdout bytes.Buffer // of the last call
}

func load(t *testing.T, name string) *loaded {
	t.Helper()
	h, err := host.New(t.Context(), host.Config{CacheDir: plugintest.CacheDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	wasm, err := python.Plugin(os.DirFS(name))
	require.NoError(t, err)
	m, err := h.Compile(t.Context(), wasm)
	require.NoError(t, err)
	return &loaded{host: h, module: m}
}

// grant grants a new folder as /data.
func (l *loaded) grant(t *testing.T, mode abi.FileMode) (dir string) {
	dir = t.TempDir()
	l.policy.Files = []host.Mount{{Dir: dir, Path: "/data", Mode: mode}}
	return dir
}

func (l *loaded) call(t *testing.T, tool string, args any) (abi.Result, error) {
	t.Helper()
	data, err := json.Marshal(args)
	require.NoError(t, err)
	l.stdout.Reset()
	return l.host.Call(t.Context(), l.module, host.Call{
		Traits: host.Traits{Plugin: tool}, Tool: tool, Args: data, Policy: l.policy, Observers: host.Observers{Stdout: &l.stdout},
	})
}

// ends requires how a call ends: with the value as JSON, or an error that has the text.
func (l *loaded) ends(t *testing.T, tool string, args any, value, problem string) {
	t.Helper()
	r, err := l.call(t, tool, args)
	require.NoError(t, err)
	if problem != "" {
		require.Contains(t, r.Error, problem)
		return
	}
	require.Equal(t, abi.Success, r.Kind, r.Error)
	require.JSONEq(t, value, string(r.Value))
}

type object = map[string]any

// snippet calls the tool python.
func (l *loaded) snippet(t *testing.T, code, value, problem string) {
	t.Helper()
	l.ends(t, "python", object{"code": code}, value, problem)
}

func TestSnippet(t *testing.T) {
	l := load(t, "snippet")

	t.Run("the value of the last expression", func(t *testing.T) {
		for code, value := range map[string]string{
			"1 + 1":                           `2`,
			"x = [1, None, 'ä']\nx":           `[1, null, "ä"]`,
			"def f(n):\n  return n * 2\nf(3)": `6`,
			"float('inf')":                    `"inf"`,
			"{1: 'a'}":                        `"{1: 'a'}"`,
			"b'ab'":                           `"b'ab'"`,
			"print('a'); 7":                   `7`,
			"print('a')\nprint('b')":          `"a\nb\n"`,
			"import sys\nsys.exit()":          `""`,
			"__name__":                        `"__main__"`,
			"":                                `""`,
			"import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  return 5\nasyncio.run(f())": `5`,
		} {
			l.snippet(t, code, value, "")
		}
	})

	t.Run("what is printed is the live output", func(t *testing.T) {
		l.snippet(t, "print('a')\n3", "3", "")
		require.Equal(t, "a\n", l.stdout.String())
		r, err := l.call(t, "python", object{"code": "print('x' * 50_000)"})
		require.NoError(t, err)
		require.Equal(t, 50_001, l.stdout.Len())
		require.Contains(t, string(r.Value), `x\n… and 34001 more characters`)
	})

	t.Run("errors have the lines of the snippet only", func(t *testing.T) {
		r, err := l.call(t, "python", object{"code": "import json\n\ndef read(s):\n    return json.loads(s)\n\nread('{')"})
		require.NoError(t, err)
		require.Equal(t, strings.Join([]string{
			"json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
			"  line 6, in <module>", "    read('{')", "    ~~~~^^^^^", "  line 4, in read", "    return json.loads(s)", "           ~~~~~~~~~~^^^",
		}, "\n"), r.Error)
		l.snippet(t, "import numpy", "", "No module named 'numpy'")
		l.snippet(t, "def f(n):\n  if n: f(n - 1)\n  else: 1 / 0\nf(20)", "", "… 16 more")
		l.snippet(t, "raise ValueError('x' * 100_000)", "", "xxx …\n")
	})

	t.Run("each call is clean", func(t *testing.T) {
		l.snippet(t, "import sys, builtins\nx = 1\nsys.stdout = None\nbuiltins.print = None\nopen = None", `""`, "")
		l.snippet(t, "import math\nmath.x = 1\nprint('still')", `"still\n"`, "")
		l.snippet(t, "import math\n'x' in globals() or hasattr(math, 'x')", `false`, "")
	})

	t.Run("a folder", func(t *testing.T) {
		l.snippet(t, "open('/data/a').read()", "", "FileNotFoundError")
		dir := l.grant(t, abi.FileWrite)
		l.snippet(t, "open('/data/a', 'w').write('hi')", `2`, "")
		data, err := os.ReadFile(filepath.Join(dir, "a"))
		require.NoError(t, err)
		require.Equal(t, "hi", string(data))
		l.snippet(t, "open('/data/../etc/passwd')", "", "Error")

		l.grant(t, abi.FileRead)
		l.snippet(t, "open('/data/a', 'w')", "", "Error")
	})
}

// TestHostileSnippets: whatever a snippet does, its call ends with an error that says why.
func TestHostileSnippets(t *testing.T) {
	l := load(t, "snippet")
	for code, problem := range map[string]string{
		"'a' * 10**10": "OverflowError",
		"'a' * 10**9":  "MemoryError",
		"x = []\nwhile True:\n  x.append('a' * 10**5)":            "MemoryError\n  line 3",
		"x = []\nwhile True:\n  x.append([])":                     "MemoryError\n  line 3",
		"def f(): f()\nf()":                                       "RecursionError: maximum recursion depth exceeded",
		"class A:\n  def __repr__(s): return repr(s)\nrepr(A())":  "RecursionError",
		"eval('(' * 1000 + ')' * 1000)":                           "too complex to parse",
		"import json\njson.loads('[' * 100_000)":                  "RecursionError",
		"int('9' * 5000)":                                         "Exceeds the limit",
		"raise KeyboardInterrupt":                                 "KeyboardInterrupt",
		"class E(Exception):\n  def __str__(s): raise s\nraise E": "str() failed",
		"import subprocess\nsubprocess.run(['ls'])":               "Error",
		"import ssl":             "Error",
		"import os\nos._exit(3)": "exited with code 3",
	} {
		t.Run(code, func(t *testing.T) { l.snippet(t, code, "", problem) })
	}

	l.policy.Fuel = 4_000_000_000 // so that it ends within seconds
	for code, reason := range map[string]error{
		"while True: pass": host.ErrFuel,
		"9 ** 9 ** 9":      host.ErrFuel,
		"import re\nre.match('(a+)+$', 'a' * 50 + 'b')": host.ErrFuel,
		"while True: print('a' * 1000)":                 host.ErrOutput,
		"'a' * 10**7":                                   host.ErrOutput,
		"import os\nos.abort()":                         host.ErrTrap,
	} {
		t.Run(code, func(t *testing.T) {
			_, err := l.call(t, "python", object{"code": code})
			require.ErrorIs(t, err, reason)
		})
	}
	l.snippet(t, "1", "1", "")
}

const sales = "region,amount,paid,day\nnorth,10,true,2026-01-02\nsouth,2.5,false,2026-01-01\nnorth,,true,2026-01-03\n\"east, far\",7,FALSE,\n"

func where(column, op string, value any) []object {
	return []object{{"column": column, "op": op, "value": value}}
}

func TestQuery(t *testing.T) {
	l := load(t, "tables")
	for name, c := range map[string]struct {
		args object
		rows string
		err  string
	}{
		"all":             {args: object{}, rows: `[["north",10,true,"2026-01-02"],["south",2.5,false,"2026-01-01"],["north",null,true,"2026-01-03"],["east, far",7,false,null]]`},
		"equal":           {args: object{"where": where("amount", "=", "10"), "select": []string{"day"}}, rows: `[["2026-01-02"]]`},
		"not equal":       {args: object{"where": where("region", "!=", "north"), "select": []string{"amount"}}, rows: `[[2.5],[7]]`},
		"less":            {args: object{"where": where("day", "<", "2026-01-03"), "select": []string{"amount"}}, rows: `[[10],[2.5]]`},
		"boolean":         {args: object{"where": where("paid", "=", false), "select": []string{"region"}}, rows: `[["south"],["east, far"]]`},
		"contains":        {args: object{"where": where("region", "contains", "FAR"), "select": []string{"amount"}}, rows: `[[7]]`},
		"in":              {args: object{"where": where("amount", "in", []any{7, 2.5}), "select": []string{"amount"}}, rows: `[[2.5],[7]]`},
		"empty":           {args: object{"where": where("amount", "empty", nil), "select": []string{"day"}}, rows: `[["2026-01-03"]]`},
		"sort":            {args: object{"sort": []string{"-amount"}, "select": []string{"amount"}}, rows: `[[10],[7],[2.5],[null]]`},
		"sort by two":     {args: object{"sort": []string{"region", "-day"}, "select": []string{"region", "day"}}, rows: `[["east, far",null],["north","2026-01-03"],["north","2026-01-02"],["south","2026-01-01"]]`},
		"page":            {args: object{"limit": 1, "offset": 1, "select": []string{"region"}}, rows: `[["south"]]`},
		"group":           {args: object{"group_by": []string{"region"}, "sort": []string{"-count", "region"}}, rows: `[["north",2],["east, far",1],["south",1]]`},
		"aggregates":      {args: object{"aggregate": []object{{"function": "count"}, {"function": "count", "column": "amount"}, {"function": "sum", "column": "amount"}, {"function": "mean", "column": "amount"}, {"function": "median", "column": "amount"}, {"function": "min", "column": "day"}, {"function": "max", "column": "amount"}, {"function": "stdev", "column": "amount"}, {"function": "distinct", "column": "region"}}}, rows: `[[4,3,19.5,6.5,7,"2026-01-01",10,3.774917217635375,3]]`},
		"of nothing":      {args: object{"where": where("amount", ">", 99), "aggregate": []object{{"function": "mean", "column": "amount"}, {"function": "sum", "column": "amount"}}}, rows: `[[null,0]]`},
		"unknown column":  {args: object{"where": where("x", "=", 1)}, err: `no column "x": the columns are region, amount, paid, day`},
		"nearly":          {args: object{"group_by": []string{"Regio"}}, err: `no column "Regio": did you mean "region"?`},
		"unknown in sort": {args: object{"sort": []string{"-what"}}, err: `no column "what"`},
		"no number":       {args: object{"where": where("amount", ">", "much")}, err: `"amount" has numbers: 'much' is not one`},
		"no value":        {args: object{"where": where("amount", ">", nil)}, err: "needs a value"},
		"mean of text":    {args: object{"aggregate": []object{{"function": "mean", "column": "region"}}}, err: `mean needs numbers, and "region" is text`},
		"two sources":     {args: object{"file": "a.csv"}, err: "give either the text itself or a file"},
	} {
		t.Run(name, func(t *testing.T) {
			c.args["csv"] = sales
			r, err := l.call(t, "query", c.args)
			require.NoError(t, err)
			if c.err != "" {
				require.Contains(t, r.Error, c.err)
				return
			}
			require.Equal(t, abi.Success, r.Kind, r.Error)
			var found struct{ Rows json.RawMessage }
			require.NoError(t, json.Unmarshal(r.Value, &found))
			require.JSONEq(t, c.rows, string(found.Rows))
		})
	}
}

// TestTables: what CSV looks like outside of examples.
func TestTables(t *testing.T) {
	l := load(t, "tables")
	for csv, want := range map[string]string{
		"a,a,\n1,2,3\n":                   `{"columns":["a","a 2","column 3"],"types":["integer","integer","integer"],"rows":[[1,2,3]],"total":1,"truncated":false}`,
		"\ufeffn;x\r\n1,5;\"a\r\nb\"\r\n": `{"columns":["n","x"],"types":["text","text"],"rows":[["1,5","a\r\nb"]],"total":1,"truncated":false}`,
		"a\tb\n1\n\n2\t\n":                `{"columns":["a","b"],"types":["integer","empty"],"rows":[[1,null],[2,null]],"total":2,"truncated":false}`,
		"a\n":                             `{"columns":["a"],"types":["empty"],"rows":[],"total":0,"truncated":false}`,
		"z\n010\n":                        `{"columns":["z"],"types":["text"],"rows":[["010"]],"total":1,"truncated":false}`,
		"z\n1e400\n":                      `{"columns":["z"],"types":["number"],"rows":[["inf"]],"total":1,"truncated":false}`,
	} {
		l.ends(t, "query", object{"csv": csv}, want, "")
	}
	l.ends(t, "query", object{"csv": ""}, "", "no header")
	l.ends(t, "query", object{"csv": "a,b\n1,2,3\n"}, "", "row 1 has 3 cells, and the header 2")
	l.ends(t, "query", object{"csv": "a\n\"" + strings.Repeat("x", 1_100_000)}, "", "is not CSV")

	long := "a\n" + strings.Repeat(strings.Repeat("y", 5000)+"\n", 1000)
	r, err := l.call(t, "query", object{"csv": long[:3_000_000], "limit": 1000})
	require.NoError(t, err)
	require.Less(t, len(r.Value), 110_000)
	require.Contains(t, string(r.Value), `"truncated":true`)
}

func TestFiles(t *testing.T) {
	l := load(t, "tables")
	l.ends(t, "query", object{"file": "a.csv"}, "", "no folder is granted as /data")

	dir := l.grant(t, abi.FileRead)
	l.ends(t, "query", object{"file": "a.csv"}, "", "there are: no files")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.csv"), []byte("stra\xdfe\n1\n"), 0o600))
	l.ends(t, "query", object{"file": "b.csv"}, "", "there are: a.csv")
	l.ends(t, "query", object{"file": "../a.csv"}, "", "cannot read ../a.csv")
	l.ends(t, "query", object{"file": "a.csv"}, "", "a.csv is not utf-8 at byte 4: give its encoding")
	l.ends(t, "query", object{"file": "a.csv", "encoding": "klingon"}, "", "unknown encoding")
	l.ends(t, "query", object{"file": "a.csv", "encoding": "latin-1"}, `{"columns":["straße"],"types":["integer"],"rows":[[1]],"total":1,"truncated":false}`, "")

	// More rows than the memory of a call would hold.
	var large strings.Builder
	large.WriteString("n,name\n")
	for i := range 30_000 {
		fmt.Fprintf(&large, "%d,%s\n", i, strings.Repeat("z", 1000))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.csv"), []byte(large.String()), 0o600))
	l.policy.Memory = 24 << 20
	l.ends(t, "query", object{"file": "large.csv", "sort": []string{"-n"}, "limit": 1, "select": []string{"n"}}, `{"columns":["n"],"types":["integer"],"rows":[[29999]],"total":30000,"truncated":true}`, "")
}

func TestTextStatistics(t *testing.T) {
	l := load(t, "tables")
	text := "\"Who's there?\" asked the long-haired man. Nobody answered\n\nA second paragraph, without an end: the wind… and rain"
	r, err := l.call(t, "text_statistics", object{"text": text, "common": true, "top": 1})
	require.NoError(t, err)
	var got object
	require.NoError(t, json.Unmarshal(r.Value, &got), r.Error)
	require.Equal(t, []any{object{"word": "the", "count": 2.0}}, got["frequencies"])
	require.Equal(t, 18.0, got["words"])
	require.Equal(t, 2.0, got["paragraphs"])
	require.Equal(t, 5.0, got["sentences"])

	l.ends(t, "text_statistics", object{"text": "..."}, "", "no words")
	l.ends(t, "text_statistics", object{}, "", "give either")

	l.policy.Fuel = 1
	_, err = l.call(t, "text_statistics", object{"text": "a"})
	require.True(t, errors.Is(err, host.ErrFuel), err)
}
