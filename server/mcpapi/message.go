package mcpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/strictjson"
)

// The first protocol revision without a handshake, and the last one with it.
const (
	modernVersion = "2026-07-28"
	lastLegacy    = "2025-11-25"
)

// Methods that are treated specially, besides those of tasks.
const (
	methodInitialize = "initialize"
	methodPing       = "ping"
	methodDiscover   = "server/discover"
	methodCall       = "tools/call"
	methodListen     = "subscriptions/listen"
	methodPrompts    = "prompts/list"
	methodPrompt     = "prompts/get"
	methodSetLevel   = "logging/setLevel"
	methodCancelled  = "notifications/cancelled"

	notifications = "notifications/"
)

const (
	maxMeta  = 64 << 10 // maximum size of _meta, in bytes; the tree that the SDK builds from it is many times as large
	maxToken = 256      // maximum size of an id or a progress token, in bytes
)

// envelope is the part of a message that transports need before the SDK reads it.
type envelope struct {
	ID      json.RawMessage // nil if it is missing, or cannot be repeated in an answer
	Method  string          // empty in an answer
	Version *string         // the protocol revision in _meta
	Name    string          // tool, prompt, resource or task of the request
	TaskIDs []string        // tasks of a subscription
	Task    bool            // the call requests a task, as in 2025-11-25
	Cancels json.RawMessage // id of the request to cancel
}

// notifies reports whether the message is a notification, which gets no answer.
func (m envelope) notifies() bool { return m.Method != "" && m.ID == nil }

// modern reports whether a message belongs to the era without a handshake.
func (m envelope) modern() bool { return m.Version != nil && *m.Version >= modernVersion }

// unsupported returns an error for an unknown revision. The SDK would ignore a revision
// older than any it knows.
func (m envelope) unsupported() *jsonrpc.Error {
	known := mcp.SupportedProtocolVersions()
	if m.Version == nil || slices.Contains(known, *m.Version) {
		return nil
	}
	data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: known, Requested: *m.Version})
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version", Data: data}
}

// named maps each method that concerns one named object to the parameter that holds the
// name. The header Mcp-Name repeats it (2026-07-28, basic/transports/streamable-http).
var named = map[string]string{
	methodCall: "name", methodPrompt: "name", "resources/read": "uri",
	methodTaskGet: "taskId", methodTaskUpdate: "taskId", methodTaskCancel: "taskId",
}

// readEnvelope parses a message strictly: names are case-sensitive, and duplicates
// are refused. Another reader of the message, a proxy or a plugin, could otherwise see
// another value.
func readEnvelope(data []byte) (m envelope, problem *jsonrpc.Error) {
	var top map[string]json.RawMessage
	if err := strictjson.Decode(data, &top); err != nil {
		return m, m.explain(data, top["id"], err)
	}

	id, method, params := top["id"], top["method"], top["params"]
	switch {
	case string(top["jsonrpc"]) != `"2.0"`:
		return m, invalidRequest(`jsonrpc: expected "2.0"`)
	case id != nil && !repeatable(id):
		return m, invalidRequest("id: expected " + repeatableForm)
	}

	m.ID = id
	if method == nil {
		return m, nil
	}
	if method[0] != '"' || json.Unmarshal(method, &m.Method) != nil {
		return m, invalidRequest("method: expected a string")
	}

	if params == nil || params[0] != '{' {
		return m, nil // the SDK checks which methods need params
	}
	if err := m.readParams(params); err != nil {
		return m, invalidParams("params: " + err.Error())
	}
	return m, nil
}

// explain returns why a message is invalid, and sets the ID if the problem is within
// the params.
func (m *envelope) explain(data []byte, id json.RawMessage, err error) *jsonrpc.Error {
	at, _ := errors.AsType[*strictjson.Error](err)
	switch {
	case strings.HasPrefix(at.Pointer, "/params/"):
		if id != nil && repeatable(id) {
			m.ID = id
		}
		return invalidParams(at.Path() + ": " + at.Message)
	case at.Pointer != "":
		return invalidRequest(at.Path() + ": " + at.Message)
	case json.Valid(data) && utf8.Valid(data):
		return invalidRequest(at.Message + "; arrays of messages are not supported")
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is not JSON in UTF-8"}
}

func (m *envelope) readParams(params json.RawMessage) error {
	var in map[string]json.RawMessage
	if err := strictjson.Decode(params, &in); err != nil {
		return err
	}

	_ = json.Unmarshal(in[named[m.Method]], &m.Name) // the SDK refuses anything but a string
	switch m.Method {
	case methodCancelled:
		if m.Cancels = in["requestId"]; m.Cancels != nil && !repeatable(m.Cancels) {
			return errors.New("requestId: expected " + repeatableForm)
		}
	case methodCall:
		m.Task = len(in["task"]) > 0 && in["task"][0] == '{'
	case methodListen:
		if err := m.readTaskIDs(in["notifications"]); err != nil {
			return err
		}
	}

	meta := in["_meta"]
	if len(meta) > maxMeta {
		return fmt.Errorf("_meta: has more than %d bytes", maxMeta)
	}

	var tags map[string]json.RawMessage
	if strictjson.Decode(meta, &tags) != nil {
		return nil // not an object: the SDK refuses it
	}
	if version := tags[mcp.MetaKeyProtocolVersion]; version != nil {
		m.Version = new(string)
		_ = json.Unmarshal(version, m.Version)
	}
	if token := tags["progressToken"]; token != nil && string(token) != "null" && !repeatable(token) {
		return errors.New("_meta.progressToken: expected " + repeatableForm)
	}
	return nil
}

func (m *envelope) readTaskIDs(listen json.RawMessage) error {
	var in map[string]json.RawMessage
	if strictjson.Decode(listen, &in) != nil || in["taskIds"] == nil {
		return nil // the SDK refuses anything but an object
	}
	if json.Unmarshal(in["taskIds"], &m.TaskIDs) != nil {
		return errors.New("notifications.taskIds: expected strings")
	}

	slices.Sort(m.TaskIDs)
	m.TaskIDs = slices.Compact(m.TaskIDs)
	m.TaskIDs = m.TaskIDs[:min(len(m.TaskIDs), maxWatched)]
	return nil
}

func invalidRequest(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not a JSON-RPC 2.0 message of MCP: " + message}
}

func invalidParams(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
}

// failure is an error response. It has no id if the id of the request is unknown: in
// MCP an id is never null.
type failure struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Error   *jsonrpc.Error  `json:"error"`
}

// repeatable reports whether an id or a token can be returned unchanged. Larger
// numbers lose digits, in clients too.
func repeatable(value []byte) bool {
	const exact = 1<<53 - 1
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return len(text) <= maxToken && !strings.ContainsRune(text, utf8.RuneError) // half a surrogate pair
	}

	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && -exact <= n && n <= exact
}

var repeatableForm = fmt.Sprintf("a string of at most %d bytes, or an integer of at most 53 bits", maxToken)

// toID returns the SDK's form of a repeatable id, and the zero ID for nil.
func toID(value json.RawMessage) jsonrpc.ID {
	var v any
	_ = json.Unmarshal(value, &v)
	id, _ := jsonrpc.MakeID(v)
	return id
}

// The headers of the streamable HTTP transport.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerName    = "Mcp-Name"

	headerLastEvent = "Last-Event-ID"
)

// standsAlone reports whether a request needs no session: its header names a revision
// without sessions, or its body names any revision.
func (m envelope) standsAlone(h http.Header) bool {
	return m.Version != nil || h.Get(headerVersion) >= modernVersion
}

// mismatch returns an error if the headers of a modern request contradict its body
// (2026-07-28, basic/transports/streamable-http, server validation): proxies act on
// them. The SDK checks the rest.
func (m envelope) mismatch(h http.Header) *jsonrpc.Error {
	for name, values := range h {
		if len(values) > 1 && strings.HasPrefix(name, "Mcp-") {
			return headerMismatch("the header " + name + " is given twice")
		}
	}

	if m.Version != nil && *m.Version != h.Get(headerVersion) {
		return headerMismatch("the header MCP-Protocol-Version must be set to the version in _meta")
	}
	if problem := m.unsupported(); problem != nil {
		return problem
	}
	if param, ok := named[m.Method]; ok {
		name, ok := decodeHeader(strings.TrimSpace(h.Get(headerName)))
		if !ok || name != m.Name || len(h.Values(headerName)) == 0 {
			return headerMismatch("the header Mcp-Name must be set to params." + param)
		}
	}
	return nil
}

func headerMismatch(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: message}
}

// decodeHeader decodes a value that may be written =?base64?…?= (2026-07-28,
// basic/transports).
func decodeHeader(value string) (string, bool) {
	const begin, end = "=?base64?", "?="
	if !strings.HasPrefix(value, begin) || !strings.HasSuffix(value, end) || len(value) < len(begin)+len(end) {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(value[len(begin) : len(value)-len(end)])
	return string(text), err == nil
}
