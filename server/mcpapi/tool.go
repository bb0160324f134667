package mcpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/server"
)

// errSchema is why a tool is not served: the SDK would panic on its schema.
var errSchema = errors.New("MCP does not allow its input_schema")

// toTool is the tool as tools/list tells it. All four annotations are written:
// MCP's defaults for those left out are the careful ones. An output schema is
// told only if it describes an object, because clients before 2026-07-28 refuse
// the whole list for any other.
func toTool(d server.Definition) (*mcp.Tool, error) {
	if err := checkInput(d.InputSchema); err != nil {
		return nil, err
	}
	a := d.Annotations
	tool := &mcp.Tool{
		Name: d.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema,
		Annotations: &mcp.ToolAnnotations{
			Title:        d.Title, // where revisions before 2025-06-18 look for it, and clients of later ones too
			ReadOnlyHint: a.ReadOnly, DestructiveHint: &a.Destructive, IdempotentHint: a.Idempotent, OpenWorldHint: &a.OpenWorld,
		},
	}
	if parseSchema(d.OutputSchema)["type"] == "object" {
		tool.OutputSchema = d.OutputSchema
	}
	return tool, nil
}

// keywords are those of a schema. Decoding to a struct would take TYPE for type.
type keywords = map[string]any

func parseSchema(schema json.RawMessage) keywords {
	var k keywords
	_ = json.Unmarshal(schema, &k) // nothing, true or false have none
	return k
}

// headerKeyword marks a property whose value clients copy to an HTTP header
// (2026-07-28, basic/transports).
const headerKeyword = "x-mcp-header"

// checkInput reports what of a schema the SDK would panic on.
func checkInput(schema json.RawMessage) error {
	root := parseSchema(schema)
	if root["type"] != "object" {
		return fmt.Errorf("%w: expected type object at the root", errSchema)
	}
	return checkHeaders(root, "", map[string]bool{})
}

// checkHeaders walks the properties of a schema that come to be headers. taken
// has the names of headers met so far, in lower case.
func checkHeaders(schema keywords, at string, taken map[string]bool) error {
	properties, _ := schema["properties"].(keywords)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		at := at + "/properties/" + name
		property, _ := properties[name].(keywords)
		if header, ok := property[headerKeyword]; ok {
			if err := checkHeader(header, property["type"], taken); err != nil {
				return fmt.Errorf("%w: %s/%s: %w", errSchema, at, headerKeyword, err)
			}
		}
		if err := checkHeaders(property, at, taken); err != nil {
			return err
		}
	}
	return nil
}

func checkHeader(header, of any, taken map[string]bool) error {
	if !slices.Contains([]any{"string", "integer", "boolean"}, of) {
		return errors.New("expected it on a string, an integer or a boolean")
	}
	name, _ := header.(string)
	if name == "" || strings.ContainsFunc(name, notToken) {
		return fmt.Errorf("expected the name of a header, found %v", header)
	}
	lower := strings.ToLower(name)
	if taken[lower] {
		return fmt.Errorf("the header %s is taken by another argument", name)
	}
	taken[lower] = true
	return nil
}

// notToken reports whether a character may not be in the name of a header, see
// tchar in RFC 9110, section 5.6.2.
func notToken(r rune) bool {
	const others = "!#$%&'*+-.^_`|~"
	return !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || strings.ContainsRune(others, r))
}
