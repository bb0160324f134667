package mcpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/internal/jsontext"
)

// envelope is what of a message says who answers it, and what it is to those it
// passes on its way.
type envelope struct {
	ID      json.RawMessage // nil: it has none, or one that no answer can repeat
	Method  string          // "": an answer
	Version *string         // the protocol revision that its _meta names
	Name    string          // what it is for: a tool, a prompt, a resource or a task
	TaskIDs []string        // it wants to hear of
	Cancels json.RawMessage // the id of the request it cancels
}

// notifies reports whether nobody may be answered.
func (m envelope) notifies() bool { return m.Method != "" && m.ID == nil }

// modern reports whether a message names a revision without a handshake.
func (m envelope) modern() bool { return m.Version != nil && *m.Version >= modernVersion }

// unsupported returns what is wrong with the revision that a request names. The SDK
// takes one that is older than all for none.
func (m envelope) unsupported() *jsonrpc.Error {
	known := mcp.SupportedProtocolVersions()
	if m.Version == nil || slices.Contains(known, *m.Version) {
		return nil
	}
	data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: known, Requested: *m.Version})
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version", Data: data}
}

// metaVersion is where a modern request says its protocol revision.
const metaVersion = mcp.MetaKeyProtocolVersion

// named are the methods that say what they are for, and where in their params.
// The header Mcp-Name repeats it (2026-07-28, basic/transports/streamable-http;
// tasks, routing headers).
var named = map[string]string{
	"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
	methodTaskGet: "taskId", methodTaskUpdate: "taskId", methodTaskCancel: "taskId",
}

// readEnvelope reads what is no array. A name in another case is another name,
// as it is to the SDK, and one that is there twice is refused: who reads the
// other one, a proxy or a plugin, would be lied to. What it lets through means
// the same to the SDK.
func readEnvelope(data []byte) (envelope, *jsonrpc.Error) {
	var m envelope
	if !utf8.Valid(data) || !json.Valid(data) {
		return m, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is not JSON in UTF-8"}
	}
	top, err := members(data, "jsonrpc", "id", "method", "params", "result", "error")
	if err != nil {
		return m, invalidMessage(err.Error())
	}
	version, id, method, params := top[0], top[1], top[2], top[3]
	switch {
	case string(version) != `"2.0"`:
		return m, invalidMessage(`jsonrpc: expected "2.0"`)
	case id != nil && !repeatable(id):
		return m, invalidMessage("id: expected " + whatIsRepeatable)
	}
	m.ID = id
	if method == nil {
		return m, nil
	}
	if json.Unmarshal(method, &m.Method) != nil || method[0] != '"' {
		return m, invalidMessage("method: expected a string")
	}
	if params == nil || params[0] != '{' {
		return m, nil // the SDK knows which methods need some
	}
	if err := m.readParams(params); err != nil {
		return m, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "params: " + err.Error()}
	}
	return m, nil
}

func (m *envelope) readParams(params []byte) error {
	in, err := members(params, "_meta", "name", "uri", "taskId", "arguments", "notifications", "requestId")
	if err != nil {
		return err
	}
	if i := slices.Index([]string{"name", "uri", "taskId"}, named[m.Method]); i >= 0 {
		_ = json.Unmarshal(in[1+i], &m.Name) // what is no string has no name, and the SDK refuses it
	}
	if listen := in[5]; m.Method == methodListen && listen != nil && listen[0] == '{' {
		wanted, err := members(listen, "taskIds")
		if err != nil {
			return fmt.Errorf("notifications: %w", err)
		}
		if wanted[0] != nil && json.Unmarshal(wanted[0], &m.TaskIDs) != nil {
			return errors.New("notifications.taskIds: expected strings")
		}
		slices.Sort(m.TaskIDs)
		m.TaskIDs = slices.Compact(m.TaskIDs)
		m.TaskIDs = m.TaskIDs[:min(len(m.TaskIDs), maxHeard)]
	}
	if id := in[6]; m.Method == methodCancelled && id != nil {
		if !repeatable(id) {
			return errors.New("requestId: expected " + whatIsRepeatable)
		}
		m.Cancels = id
	}
	meta := in[0]
	switch {
	case len(meta) > maxMeta:
		return fmt.Errorf("_meta: has more than %d bytes", maxMeta)
	case meta != nil && meta[0] == '{':
		return m.readMeta(meta)
	}
	return nil
}

func (m *envelope) readMeta(meta []byte) error {
	in, err := members(meta, metaVersion, "progressToken", mcp.MetaKeyClientCapabilities, mcp.MetaKeyClientInfo)
	if err != nil {
		return fmt.Errorf("_meta: %w", err)
	}
	if in[0] != nil {
		m.Version = new(string)
		_ = json.Unmarshal(in[0], m.Version)
	}
	if token := in[1]; token != nil && string(token) != "null" && !repeatable(token) {
		return errors.New("progressToken: expected " + whatIsRepeatable)
	}
	return nil
}

func invalidMessage(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not a JSON-RPC 2.0 message of MCP: " + message}
}

// failure is the answer to a message that the SDK does not see. It has no id if
// none can be said: MCP's ids are never null.
type failure struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Error   *jsonrpc.Error  `json:"error"`
}

// repeatable reports whether an id or a token can be said back as it was said.
// Larger numbers lose digits on their way, in clients too.
func repeatable(value []byte) bool {
	const exact = 1<<53 - 1
	var text string
	if json.Unmarshal(value, &text) == nil && value[0] == '"' {
		return len(text) <= maxToken && !strings.ContainsRune(text, utf8.RuneError) // half a surrogate pair
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && -exact <= n && n <= exact
}

var whatIsRepeatable = fmt.Sprintf("a string of at most %d bytes, or an integer of at most 53 bits", maxToken)

// members returns the values of an object of valid JSON under those names, nil
// for those it lacks. It is an error if one of them is there twice.
func members(object []byte, names ...string) ([][]byte, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(object), []byte("{")) {
		return nil, errors.New("expected an object")
	}
	values := make([][]byte, len(names))
	for name, value := range jsontext.Members(object) {
		i := slices.Index(names, name)
		switch {
		case i < 0:
		case values[i] != nil:
			return nil, fmt.Errorf("%q is there twice", name)
		default:
			values[i] = value
		}
	}
	return values, nil
}
