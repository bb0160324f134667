package mcpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
)

// No large value is sent twice: what is sent twice makes no event of 1 MiB, however it
// is escaped.
func TestLargeResult(t *testing.T) {
	for _, test := range []struct {
		size, copies int
	}{{maxInline, 2}, {maxInline + 1, 1}} {
		value := json.RawMessage(`"` + strings.Repeat(`\n`, test.size/2-1) + strings.Repeat("x", test.size%2) + `"`)
		require.Len(t, value, test.size)
		data, err := json.Marshal(toResult(abi.Result{Kind: abi.Success, Value: value}, true))
		require.NoError(t, err)
		require.Less(t, len(data), 1<<20-64<<10)
		require.Equal(t, test.copies == 2, bytes.Contains(data, []byte(strings.Repeat(`\\n`, test.size/2-1))))
		require.Contains(t, string(data), `"structuredContent":`+string(value))

		data, err = json.Marshal(toResult(abi.Result{Kind: abi.Success, Value: value}, false))
		require.NoError(t, err)
		require.NotContains(t, string(data), "It begins")
		require.NotContains(t, string(data), "structuredContent")
	}
}

func TestResult(t *testing.T) {
	block := []abi.Block{{Type: "text", Text: "more"}}
	for _, test := range []struct {
		name       string
		result     abi.Result
		structured bool
		want       string
	}{
		{"object", abi.Result{Kind: abi.Success, Value: json.RawMessage(`{"a":1}`)}, false,
			`{"content":[{"type":"text","text":"{\"a\":1}"}]}`},
		{"object of a schema", abi.Result{Kind: abi.Success, Value: json.RawMessage(`{"a":1}`)}, true,
			`{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`},
		{"and content", abi.Result{Kind: abi.Success, Value: json.RawMessage(`{"a":1}`), Content: block}, true,
			`{"content":[{"type":"text","text":"{\"a\":1}"},{"type":"text","text":"more"}],"structuredContent":{"a":1}}`},
		{"number", abi.Result{Kind: abi.Success, Value: json.RawMessage(`12345678901234567890`)}, false,
			`{"content":[{"type":"text","text":"{\"result\":12345678901234567890}"}]}`},
		{"list", abi.Result{Kind: abi.Success, Value: json.RawMessage(`[1]`)}, false,
			`{"content":[{"type":"text","text":"{\"result\":[1]}"}]}`},
		{"number of a schema", abi.Result{Kind: abi.Success, Value: json.RawMessage(`168`)}, true,
			`{"content":[{"type":"text","text":"168"}],"structuredContent":168}`},
		{"null", abi.Result{Kind: abi.Success, Value: json.RawMessage(`null`)}, false,
			`{"content":[{"type":"text","text":"{\"result\":null}"}]}`},
		{"nothing", abi.Result{Kind: abi.Success}, false,
			`{"content":[{"type":"text","text":"The tool returned nothing."}]}`},
		{"content alone", abi.Result{Kind: abi.Success, Content: block}, false,
			`{"content":[{"type":"text","text":"more"}]}`},
		{"string", abi.Result{Kind: abi.Success, Value: json.RawMessage(`"a\nb"`)}, false,
			`{"content":[{"type":"text","text":"a\nb"}]}`},
		{"string that UTF-8 cannot hold", abi.Result{Kind: abi.Success, Value: json.RawMessage(`"\ud800"`)}, false,
			`{"content":[{"type":"text","text":"{\"result\":\"\\ud800\"}"}]}`},
		{"string in which bytes were replaced", abi.Result{Kind: abi.Success, Value: json.RawMessage("\"caf\ufffd\"")}, false,
			"{\"content\":[{\"type\":\"text\",\"text\":\"caf\ufffd\"}]}"},
		{"string in which bytes were replaced, with escapes", abi.Result{Kind: abi.Success, Value: json.RawMessage("\"caf\ufffd \\u003cb\\u003e\"")}, false,
			"{\"content\":[{\"type\":\"text\",\"text\":\"caf\ufffd <b>\"}]}"},
		{"string that is a number", abi.Result{Kind: abi.Success, Value: json.RawMessage(`"168"`)}, false,
			`{"content":[{"type":"text","text":"{\"result\":\"168\"}"}]}`},
		{"string that begins like one", abi.Result{Kind: abi.Success, Value: json.RawMessage(`"168 primes"`)}, false,
			`{"content":[{"type":"text","text":"168 primes"}]}`},
		{"string that is an object", abi.Result{Kind: abi.Success, Value: json.RawMessage(`"{}"`)}, false,
			`{"content":[{"type":"text","text":"{}"}]}`},
		{"tool error", abi.Result{Kind: abi.ToolError, Error: "no", Content: block}, true,
			`{"content":[{"type":"text","text":"no"},{"type":"text","text":"more"}],"isError":true}`},
		{"limit", abi.Result{Kind: abi.LimitReached, Limit: abi.LimitFuel, Error: "out of fuel"}, true,
			`{"content":[{"type":"text","text":"out of fuel"}],"isError":true}`},
		{"internal", abi.Result{Kind: abi.Internal, Error: abi.InternalMessage, Content: block, Value: json.RawMessage(`"secret"`)}, true,
			`{"content":[{"type":"text","text":"An internal error occurred while executing the tool"}],"isError":true}`},
		{"canceled", abi.Result{Kind: abi.CanceledKind, Error: "context canceled"}, false,
			`{"content":[{"type":"text","text":"context canceled"}],"isError":true}`},
		{"connection", abi.Result{Kind: abi.ConnectionRequired, Connection: &abi.Connection{Provider: "mail"}}, true,
			`{"content":[{"type":"text","text":"This tool needs a connection to mail. Ask the user to set it up and then call the tool again."}],"isError":true}`},
		{"block of a later contract", abi.Result{Kind: abi.Success, Content: []abi.Block{{Type: "hologram", URI: "x:y"}}}, false,
			`{"content":[{"type":"text","text":"{\"type\":\"hologram\",\"uri\":\"x:y\"}"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(toResult(test.result, test.structured))
			require.NoError(t, err)
			require.JSONEq(t, test.want, string(got))
		})
	}
}
