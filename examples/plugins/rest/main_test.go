package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

var plugin = newPlugin("testdata/apis")

func TestPlugin(t *testing.T) { guesttest.Check(t, plugin) }

func TestREADME(t *testing.T) { readme.Check(t, plugin) }

// admitted is what the operator's rules admit.
var admitted = []guest.HTTPNeed{{URL: "https://api.example.com/v1/*", Methods: []string{"*"}}}

func TestOperations(t *testing.T) {
	for search, want := range map[string]string{
		"":         `{"operations":[{"operation":"DELETE /teas/{name}","method":"DELETE","url":"https://api.example.com/v1/teas/{name}","summary":"Remove a tea"},{"operation":"addTea","method":"POST","url":"https://api.example.com/v1/teas","summary":"Add a tea"},{"operation":"getTea","method":"GET","url":"https://api.example.com/v1/teas/{name}","summary":"One tea"}],"more":1}`,
		"LIST tea": `{"operations":[{"operation":"listTeas","method":"GET","url":"https://api.example.com/v1/teas","summary":"List teas"}]}`,
		"coffee":   `{"operations":[]}`,
	} {
		out := guesttest.Call(plugin, "operations", operationsArgs{Search: search, Limit: 3})
		require.True(t, out.IsSuccess(), out.Error)
		require.JSONEq(t, want, string(out.Value))
	}

	for name, want := range map[string]string{
		"listTeas": `{"operation":"listTeas","method":"GET","url":"https://api.example.com/v1/teas","summary":"List teas","parameters":[{"name":"kind","in":"query","schema":{"type":"array","items":{"enum":["green","black"]}}},{"name":"X-Trace","in":"header","description":"Shown in the log","schema":{"type":"string"}}]}`,
		"getTea":   `{"operation":"getTea","method":"GET","url":"https://api.example.com/v1/teas/{name}","summary":"One tea","parameters":[{"name":"name","in":"path","required":true,"schema":{"type":"string"}}]}`,
	} {
		out := guesttest.Call(plugin, "operations", operationsArgs{Operation: name})
		require.True(t, out.IsSuccess(), out.Error)
		require.JSONEq(t, `{"operations":[`+want+`]}`, string(out.Value))
	}
	out := guesttest.Call(plugin, "operations", operationsArgs{Operation: "addTea"})
	require.Equal(t, 5, strings.Count(string(out.Value), `"required":["name"]`)+strings.Count(string(out.Value), `see #/components/schemas/tea`), "a schema within itself ends")
}

// TestCall plays what an API has answered.
func TestCall(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Recorded(t, "testdata/tea.json"), HTTPRules: admitted}
	for _, c := range []struct {
		tool, args string
		want       string // the result, or the error
	}{
		{"get", `{"operation":"listTeas","parameters":{"kind":["green","black"],"X-Trace":"1"}}`, `{"status":200,"body":{"teas":[{"name":"sencha"},{"name":"assam"}]}}`},
		{"get", `{"operation":"getTea","parameters":{"name":"earl grey/no?1"}}`, `{"status":200,"text":"Ein Tee mit Öl"}`},
		{"call", `{"operation":"addTea","body":{"name":"mate"}}`, `{"status":201,"body":{"name":"mate","id":12345678901234567890}}`},
		{"call", `{"operation":"DELETE /teas/{name}","parameters":{"name":7}}`, `DELETE /teas/{name} answers 409 Conflict: somebody is drinking it`},
		{"get", `{"operation":"getTea","parameters":{"name":"long"},"limit":100}`, `{"status":200,"text":"[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,3","cut":5}`},

		{"get", `{"operation":"addTea"}`, `addTea is a POST: use rest_call`},
		{"get", `{"operation":"drinkTea"}`, `there is no operation "drinkTea": list them with rest_operations`},
		{"get", `{"operation":"getTea"}`, `getTea needs the parameter "name"`},
		{"get", `{"operation":"getTea","parameters":{"name":null}}`, `getTea needs the parameter "name"`},
		{"get", `{"operation":"getTea","parameters":{"name":"a","size":1}}`, `getTea has no parameter "size", but: name`},
		{"get", `{"operation":"getTea","parameters":{"name":".."}}`, `the parameter "name" of the path cannot be ".."`},
		{"get", `{"operation":"getTea","parameters":{"name":""}}`, `the parameter "name" of the path cannot be ""`},
		{"call", `{"operation":"getTea","parameters":{"name":"a"},"body":{}}`, `getTea takes no body`},
		{"call", `{"operation":"addTea"}`, `addTea needs a body`},
	} {
		out := h.Call(plugin, c.tool, json.RawMessage(c.args))
		got := string(out.Value)
		if !out.IsSuccess() {
			got = out.Error
		}
		require.Equal(t, c.want, got, c.args)
	}

	out := guesttest.Host{HTTP: guesttest.Play()}.Call(plugin, "get", json.RawMessage(`{"operation":"listTeas"}`))
	require.Contains(t, out.Error, "denied: GET https://api.example.com/v1/teas is refused")
}

// TestHostileDescriptions: a description that cannot be used says why, and none takes
// long.
func TestHostileDescriptions(t *testing.T) {
	const head = `{"openapi":"3.0.0","servers":[{"url":"https://a.example"}],`
	schema := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"s%d":{"a":{"$ref":"#/s%d"},"b":{"$ref":"#/s%d"},"c":{"$ref":"#/s%d"}},`, i, i+1, i+1, i+1)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"none":                 {"a.txt", "x", "no API is described: the operator puts OpenAPI documents, *.yaml or *.json, into the folder"},
		"no YAML":              {"a.yaml", "a: [", "a.yaml: yaml: line 1: did not find expected node content"},
		"an older version":     {"a.json", `{"swagger":"2.0"}`, "a.json: not an OpenAPI document of version 3"},
		"a list":               {"a.yaml", `[1]`, "a.yaml: yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into map[string]interface {}"},
		"no server":            {"a.json", `{"openapi":"3.0.0"}`, "a.json: servers: the first one needs a whole URL, such as https://api.example.com/v1"},
		"a relative server":    {"a.json", `{"openapi":"3.0.0","servers":[{"url":"/v1"}]}`, "a.json: servers: the first one needs a whole URL, such as https://api.example.com/v1"},
		"too large":            {"a.json", head + `"x":"` + strings.Repeat("x", maxFile) + `"}`, "a.json: larger than 1048576 bytes: keep the operations that are needed"},
		"of other types":       {"a.json", head + `"paths":{"/a":{"get":{"operationId":1,"summary":[],"parameters":{"a":1},"requestBody":[]}},"/b":7,"/c":{"get":null}}}`, `{"operations":[{"operation":"GET /a","method":"GET","url":"https://a.example/a"}]}`},
		"numbers as names":     {"a.yaml", "openapi: 3.0.0\nservers: [{url: 'https://a.example/'}]\npaths: {/a: {get: {responses: {200: {1: {2: x}}}, parameters: [{name: a, in: query, schema: {enum: {1: 2}}}]}}}", `{"operations":[{"operation":"GET /a","method":"GET","url":"https://a.example/a","parameters":[{"name":"a","in":"query","schema":{"enum":{"1":2}}}]}]}`},
		"the same name twice":  {"a.json", head + `"paths":{"/a":{"get":{"operationId":"GET /a"},"post":{"operationId":"GET /a"}}}}`, `{"operations":[{"operation":"GET /a","method":"GET","url":"https://a.example/a"}]}`},
		"references elsewhere": {"a.json", head + `"paths":{"/a":{"get":{"parameters":[{"$ref":"https://b.example/x"},{"$ref":"#/paths/nowhere/0"},{"$ref":"#/"}]}}}}`, `{"operations":[{"operation":"GET /a","method":"GET","url":"https://a.example/a"}]}`},
		"a growing one":        {"a.json", head + schema(300) + `"paths":{"/a":{"get":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/s0"}}}}}}}}`, `see #/s4`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o666))
			out := guesttest.Call(newPlugin(folder(dir)), "operations", operationsArgs{Operation: "GET /a"})
			got := out.Error
			if out.IsSuccess() {
				got = string(out.Value)
			}
			require.Contains(t, got, c.want)
			require.Less(t, len(got), 100<<10)
		})
	}
	out := guesttest.Call(newPlugin("testdata/none"), "operations", operationsArgs{})
	require.Contains(t, out.Error, "the descriptions of APIs: ")

	dir := t.TempDir() // a link that leads out of the folder
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(head+`"paths":{}}`), 0o666))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "apis"), 0o777))
	require.NoError(t, os.Symlink("../secret.json", filepath.Join(dir, "apis", "a.json")))
	out = guesttest.Call(newPlugin(folder(filepath.Join(dir, "apis"))), "operations", operationsArgs{})
	require.Contains(t, out.Error, "path escapes from parent")
}
