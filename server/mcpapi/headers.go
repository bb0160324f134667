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

// standsAlone reports whether a request needs no session: its header names a
// revision that has none, or its body any revision at all.
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

// decodeHeader reads a value that may be written =?base64?…?= (2026-07-28,
// basic/transports).
func decodeHeader(value string) (string, bool) {
	const begin, end = "=?base64?", "?="
	if !strings.HasPrefix(value, begin) || !strings.HasSuffix(value, end) || len(value) < len(begin)+len(end) {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(value[len(begin) : len(value)-len(end)])
	return string(text), err == nil
}
