package mcpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
)

func TestReadEnvelope(t *testing.T) {
	long := strings.Repeat("x", maxToken)
	for _, test := range []struct {
		name, message string
		want          envelope
	}{
		{"a request", `{"jsonrpc":"2.0","id":"a","method":"ping"}`, envelope{ID: []byte(`"a"`), Method: "ping"}},
		{"a notification", ` {"method":"x","jsonrpc":"2.0" , "params" : [1] } `, envelope{Method: "x"}},
		{"an answer", `{"jsonrpc":"2.0","id":5,"result":{"method":"ping"}}`, envelope{ID: []byte(`5`)}},
		{"the largest numbers", `{"jsonrpc":"2.0","id":-9007199254740991,"method":"x","params":{"_meta":{"progressToken":9007199254740991}}}`, envelope{ID: []byte(`-9007199254740991`), Method: "x"}},
		{"the longest string", `{"jsonrpc":"2.0","id":"` + long + `","method":"x"}`, envelope{ID: []byte(`"` + long + `"`), Method: "x"}},
		{"a task", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","name":"b"}}`, envelope{ID: []byte(`1`), Method: "tasks/get", Name: "a"}},
		{"names in other cases", `{"jsonrpc":"2.0","id":1,"ID":2,"method":"tasks/get","Method":"x","Params":{"taskId":"x"},"params":{"taskid":"b","taskId":"a","TASKID":"c"}}`,
			envelope{ID: []byte(`1`), Method: "tasks/get", Name: "a"}},
		{"no name but in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"b"}}`, envelope{ID: []byte(`1`), Method: "tools/call"}},
		{"a name that is escaped", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\u0061me":"a\"}"}}`, envelope{ID: []byte(`1`), Method: "tools/call", Name: `a"}`}},
		{"names within other values", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"name":"x","names":["y",{}]},"name":"a"}}`, envelope{ID: []byte(`1`), Method: "tools/call", Name: "a"}},
		{"what it wants to hear", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"taskids":["x"],"taskIds":["b","a","b"]}}}`,
			envelope{ID: []byte(`1`), Method: methodListen, TaskIDs: []string{"a", "b"}}},
		{"what it cancels", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestid":1,"requestId":2}}`, envelope{Method: methodCancelled, Cancels: []byte(`2`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, problem := readEnvelope([]byte(test.message))
			require.Nil(t, problem)
			require.Equal(t, test.want, m)
		})
	}
}

func TestReadEnvelopeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		message string
		code    int64
		why     string
		id      string // that the refusal has
	}{
		"no UTF-8":           {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700, "not JSON in UTF-8", ""},
		"no object":          {`"x"`, -32600, "expected an object", ""},
		"another version":    {`{"jsonrpc":"1.0","id":1,"method":"x"}`, -32600, `jsonrpc: expected "2.0"`, ""},
		"id null":            {`{"jsonrpc":"2.0","id":null,"method":"x"}`, -32600, "id: expected a string", ""},
		"id with a fraction": {`{"jsonrpc":"2.0","id":1.5,"method":"x"}`, -32600, "id: expected a string", ""},
		"id too large":       {`{"jsonrpc":"2.0","id":9007199254740992,"method":"x"}`, -32600, "id: expected a string", ""},
		"id too long":        {`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxToken+1) + `","method":"x"}`, -32600, "at most 256 bytes", ""},
		"id of half a pair":  {`{"jsonrpc":"2.0","id":"\ud800","method":"x"}`, -32600, "id: expected a string", ""},
		"id twice":           {`{"jsonrpc":"2.0","id":1,"method":"x","id":2}`, -32600, "id: given more than once", ""},
		"method twice":       {`{"jsonrpc":"2.0","id":1,"method":"x","m\u0065thod":"y"}`, -32600, "method: given more than once", ""},
		"params twice":       {`{"jsonrpc":"2.0","id":1,"method":"x","params":{},"params":null}`, -32600, "params: given more than once", ""},
		"method no string":   {`{"jsonrpc":"2.0","id":1,"method":null}`, -32600, "method: expected a string", "1"},
		"task twice":         {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","taskId":"a"}}`, -32602, "params.taskId: given more than once", "1"},
		"_meta twice":        {`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{},"_meta":{}}}`, -32602, "params._meta: given more than once", "1"},
		"revision twice": {`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"a","io.modelcontextprotocol/protocolVersion":"b"}}}`,
			-32602, "params._meta.io.modelcontextprotocol/protocolVersion: given more than once", "1"},
		"token with a fraction": {`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":0.5}}}`, -32602, "progressToken: expected a string", "1"},
		"tasks that are none":   {`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"taskIds":[1]}}}`, -32602, "taskIds: expected strings", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			m, problem := readEnvelope([]byte(test.message))
			require.NotNil(t, problem)
			require.Equal(t, test.code, problem.Code)
			require.Contains(t, problem.Message, test.why)
			require.Equal(t, test.id, string(m.ID))
		})
	}
}

// FuzzEnvelope: the SDK reads every message that we let through as we do, and its answer
// has the id that was sent.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":"a","method":"tasks/get","params":{"taskId":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":-0,"Method":"a","method":"\u0061\ud800"}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[{"}":"\\"},[]]},"error":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, problem := readEnvelope(data)
		if problem != nil {
			return
		}
		decoded, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			return
		}
		id := jsonrpc.ID{}
		switch decoded := decoded.(type) {
		case *jsonrpc.Request:
			require.Equal(t, m.Method, decoded.Method)
			id = decoded.ID
		case *jsonrpc.Response:
			require.Empty(t, m.Method)
			id = decoded.ID
		}
		require.Equal(t, m.ID != nil, id.IsValid())
		if m.ID == nil {
			return
		}
		answer, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Result: json.RawMessage(`{}`)})
		require.NoError(t, err)
		var sent, said any
		require.NoError(t, json.Unmarshal(m.ID, &sent))
		again, problem := readEnvelope(answer)
		require.Nil(t, problem)
		require.NoError(t, json.Unmarshal(again.ID, &said))
		require.EqualValues(t, sent, said)
	})
}
