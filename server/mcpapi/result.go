package mcpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
)

// toResult is a result as MCP tells it. Some clients show their model only
// content, others only structuredContent where there is one, so that each has
// to be the whole value:
//
//   - content begins with the value as JSON text. A value that is a string is
//     its own text, for a model reads that better, unless the tool declares an
//     output schema, or the string cannot be written in UTF-8 as it is. The
//     content blocks of the tool follow in their order.
//   - structuredContent is the value again, for tools that declare an output
//     schema that MCP can tell (structured). MCP demands it of those, and
//     clients refuse a result that lacks it.
//
// Everything but a success is an error the model sees, and never breaks the
// output schema, which errors are exempt from. Only a tool's own error keeps
// its content: what a broken plugin left is not the agent's business.
func toResult(r abi.Result, structured bool) *mcp.CallToolResult {
	out := &mcp.CallToolResult{}
	switch r.Kind {
	case abi.Success:
		if r.Value != nil {
			out.Content = append(out.Content, &mcp.TextContent{Text: valueText(r.Value, structured)})
		}
		if structured {
			out.StructuredContent = r.Value
		}
	case abi.ConnectionRequired:
		out.IsError = true
		out.Content = append(out.Content, &mcp.TextContent{Text: connectionText(r)})
		return out
	default:
		out.IsError = true
		out.Content = append(out.Content, &mcp.TextContent{Text: r.Error})
		if r.Kind != abi.ToolError {
			return out
		}
	}
	for _, b := range r.Content {
		out.Content = append(out.Content, toContent(b))
	}
	return out
}

func valueText(value json.RawMessage, structured bool) string {
	var text string
	if structured || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	if strings.ContainsRune(text, utf8.RuneError) {
		return string(value) // it may stand for half a surrogate pair
	}
	return text
}

// connectionText asks the model to ask the user.
func connectionText(r abi.Result) string {
	if r.Connection == nil {
		return r.Error
	}
	text := "This tool needs a connection to " + r.Connection.Provider
	if r.Connection.Subject != "" {
		text += " (" + r.Connection.Subject + ")"
	}
	if r.Connection.SetupURL != "" {
		return text + ". Ask the user to set it up at " + r.Connection.SetupURL + " and then call the tool again."
	}
	return text + ". Ask the user to set it up and then call the tool again."
}

func toContent(b abi.Block) mcp.Content {
	switch b.Type {
	case "text":
		return &mcp.TextContent{Text: b.Text}
	case "image":
		return &mcp.ImageContent{Data: b.Data, MIMEType: b.MIMEType}
	case "audio":
		return &mcp.AudioContent{Data: b.Data, MIMEType: b.MIMEType}
	case "resource":
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: b.URI, MIMEType: b.MIMEType, Text: b.Text}}
	case "resource_link":
		return &mcp.ResourceLink{URI: b.URI, Name: b.Name, MIMEType: b.MIMEType}
	}
	// A kind of block that is newer than this adapter: its JSON loses nothing.
	data, err := json.Marshal(b)
	if err != nil {
		data = fmt.Appendf(nil, "content of type %s: %v", b.Type, err)
	}
	return &mcp.TextContent{Text: string(data)}
}
