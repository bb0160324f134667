package mcpapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
)

// toResult returns a result in MCP's form. Some clients show their model only content, such
// as Kimi, and others only structuredContent if there is one, such as Claude Code and Codex,
// so each contains the whole value:
//
//   - content begins with the value as JSON text. A string is its own text, which a
//     model reads better, unless the tool declares an output schema, or the string
//     cannot be written in UTF-8. Without an output schema, a text that is JSON but not
//     an object comes as {"result": …}: Gemini CLI takes JSON in content for
//     structuredContent, and fails if it is not an object. The content blocks of the tool
//     follow. If there is nothing, a text says so: some clients refuse empty content.
//   - structuredContent is the value again, if the tool declares an output schema
//     that MCP allows (structured). Then clients refuse a result without it. A value
//     of more than maxInline bytes is there only, and content has its beginning: no
//     event has both copies and more than 1 MiB, which Python's SDK 2 loses.
//
// Everything but a success is an error that the model sees; errors are exempt from the
// output schema. Only a tool's own error keeps its content: what a broken plugin left
// behind does not help the agent.
func toResult(r abi.Result, structured bool) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Content: []mcp.Content{}}
	switch r.Kind {
	case abi.Success:
		if r.Value != nil {
			text := valueText(r.Value, structured)
			if structured && len(r.Value) > maxInline {
				text = beginningOf(r.Value) + "\nstructuredContent has all of it."
			}
			out.Content = append(out.Content, &mcp.TextContent{Text: text})
		}
		if structured {
			out.StructuredContent = r.Value
		}
	case abi.ConnectionRequired:
		return failed(connectionText(r))
	case abi.ToolError:
		out = failed(r.Error)
	default:
		return failed(r.Error)
	}

	for _, b := range r.Content {
		out.Content = append(out.Content, toContent(b))
	}
	if len(out.Content) == 0 {
		out.Content = append(out.Content, &mcp.TextContent{Text: "The tool returned nothing."})
	}
	return out
}

// failed returns a result that tells the model what went wrong.
func failed(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func valueText(value json.RawMessage, structured bool) string {
	if structured || value[0] == '{' {
		return string(value)
	}
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil && !isBareJSON(text) && !mayBeHalf(value, text) {
		return text
	}
	return `{"result":` + string(value) + `}`
}

// surrogate matches half a surrogate pair in JSON. Other escapes are common: json.Marshal
// writes <, > and & as such.
var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// mayBeHalf reports whether a character in the text of a JSON string may stand for half a
// surrogate pair.
func mayBeHalf(value json.RawMessage, text string) bool {
	return strings.ContainsRune(text, utf8.RuneError) && surrogate.Match(value)
}

// isBareJSON reports whether a text is JSON, but not an object.
func isBareJSON(text string) bool {
	begin := strings.TrimLeft(text, " \t\r\n")
	return begin != "" && strings.IndexByte("\"[-0123456789tfn", begin[0]) >= 0 && json.Valid([]byte(text))
}

// connectionText returns a text that tells the model to have the user set up a
// connection.
func connectionText(r abi.Result) string {
	if r.Connection == nil {
		return r.Error
	}

	text := "This tool needs a connection to " + r.Connection.Provider
	if r.Connection.Subject != "" {
		text += " (" + r.Connection.Subject + ")"
	}
	if why, ok := strings.CutPrefix(r.Error, "connect "+r.Connection.Provider+" first: "); ok && r.Connection.SetupURL == "" {
		text += ": " + why
	}
	at := ""
	if r.Connection.SetupURL != "" {
		at = " at " + r.Connection.SetupURL
	}
	return text + ". Ask the user to set it up" + at + " and then call the tool again."
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

	// This adapter does not know the type: its JSON loses nothing.
	data, err := json.Marshal(b)
	if err != nil {
		data = fmt.Appendf(nil, "content of type %s: %v", b.Type, err)
	}
	return &mcp.TextContent{Text: string(data)}
}
