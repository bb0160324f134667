package mcpapi

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The headers of the streamable HTTP transport.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerName    = "Mcp-Name"
)

// standsAlone reports whether a request stands for itself: its header names a
// revision that has no sessions, or its body any at all.
func (m envelope) standsAlone(h http.Header) bool {
	return m.Version != nil || h.Get(headerVersion) >= modernVersion
}

// belied returns what is wrong if the headers do not say of a modern request what
// it is, which intermediaries go by (2026-07-28, basic/transports/streamable-http,
// server validation). What it does not look at is looked at by the SDK.
func (m envelope) belied(h http.Header) *jsonrpc.Error {
	for name, values := range h {
		if len(values) > 1 && strings.HasPrefix(name, "Mcp-") {
			return mismatch("the header " + name + " is there twice")
		}
	}
	version := h.Get(headerVersion)
	if m.Version != nil && *m.Version != version {
		return mismatch("the header MCP-Protocol-Version has to be there, and to be what _meta says")
	}
	if problem := m.unsupported(); problem != nil {
		return problem
	}
	if what, ok := named[m.Method]; ok {
		name, ok := decodeHeader(strings.TrimSpace(h.Get(headerName)))
		if !ok || name != m.Name || len(h.Values(headerName)) == 0 {
			return mismatch("the header Mcp-Name has to be there, and to be params." + what)
		}
	}
	return nil
}

func mismatch(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: message}
}

// decodeHeader reads a value that may be =?base64?…?= (2026-07-28,
// basic/transports).
func decodeHeader(value string) (string, bool) {
	const begin, end = "=?base64?", "?="
	if !strings.HasPrefix(value, begin) || !strings.HasSuffix(value, end) || len(value) < len(begin)+len(end) {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(value[len(begin) : len(value)-len(end)])
	return string(text), err == nil
}
