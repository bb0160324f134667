package extism

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
)

// mcpContext is the request information that a v2 tool gets.
type mcpContext struct {
	ID   string   `json:"id"`
	Meta struct{} `json:"_meta"`
}

// listInput returns the input of the function that lists the tools.
func (c *Call) listInput() []byte {
	if c.Info.MCP == contract.MCPv1 {
		return nil
	}
	return guestcall.JSON(map[string]any{"context": mcpContext{ID: "list"}})
}

// callInput returns the input of the function that calls a tool.
func (c *Call) callInput() []byte {
	request := map[string]any{"name": c.MCPTool, "arguments": c.Args}
	if c.Info.MCP == contract.MCPv1 {
		return guestcall.JSON(map[string]any{"params": request})
	}
	return guestcall.JSON(map[string]any{"request": request, "context": mcpContext{ID: c.Ops.ID}})
}

// takeMCP takes the result of a tool, MCP's CallToolResult.
func (c *Call) takeMCP(output []byte) int32 {
	broken := func(err error) {
		panic(&instance.Stop{Reason: fmt.Errorf("%w: the result of the tool: %w", contract.ErrABI, err)})
	}
	var result struct {
		Content    json.RawMessage `json:"content"` // of any length
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(c.take(output), &result); err != nil {
		broken(err)
	}
	blocks, err := decodeMost[mcpBlock](result.Content, answer.MaxBlocks)
	if err != nil {
		broken(err)
	}

	if only := len(blocks) == 1 && blocks[0].Type == "text"; result.IsError || only && len(result.Structured) == 0 {
		var texts []string
		for _, b := range blocks {
			texts = append(texts, b.Text)
		}
		text := []byte(strings.Join(texts, "\n"))
		if result.IsError {
			c.Answer.Error = text
			return abi.InvokeToolError
		}
		c.Answer.Result, c.Answer.Given = text, true
		return abi.InvokeOK
	}

	for _, b := range blocks {
		if b.Type == "text" && len(result.Structured) > 0 && jsonAlike(b.Text, result.Structured) {
			continue // a copy for clients that do not read structured content
		}
		if err := c.Answer.Add(guestcall.JSON(b.block())); err != nil {
			broken(err)
		}
	}
	if string(result.Structured) != "null" {
		c.Answer.Result = result.Structured
	}
	c.Answer.Given = true
	return abi.InvokeOK
}

// jsonAlike reports whether a text is the JSON of a value.
func jsonAlike(text string, value json.RawMessage) bool {
	var a, b bytes.Buffer
	return json.Compact(&a, []byte(text)) == nil && json.Compact(&b, value) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// mcpBlock is a content block of MCP. Of its metadata only the fields of abi.Block
// are passed on.
type mcpBlock struct {
	abi.Block
	Resource *struct {
		abi.Block
		Blob []byte `json:"blob"`
	} `json:"resource"`
}

// block converts a content block to the contract's form, in which the fields of an embedded
// resource are not nested. For a binary resource only its name is kept.
func (b mcpBlock) block() abi.Block {
	if b.Resource == nil {
		return b.Block
	}
	block := b.Resource.Block
	block.Type = b.Type
	if block.Text == "" && len(b.Resource.Blob) > 0 {
		block.Text = fmt.Sprintf("(%d bytes)", len(b.Resource.Blob))
	}
	return block
}

// decodeMost decodes null, or an array with no more elements than most says.
func decodeMost[T any](data json.RawMessage, most int) (list []T, err error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("expected an array")
	}
	for d.More() {
		if len(list) == most {
			return nil, fmt.Errorf("expected at most %d elements in an array", most)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}

// Manifest returns the manifest of a plugin that lists its tools in MCP's format. The name
// must begin with a letter. list is what the plugin returned when asked for its tools.
func Manifest(name string, list []byte) ([]byte, error) {
	var answer struct {
		Tools json.RawMessage `json:"tools"`
	}
	err := json.Unmarshal(list, &answer)
	var tools []mcpTool
	if err == nil {
		tools, err = decodeMost[mcpTool](answer.Tools, abi.MaxTools)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the list of its tools: %w", contract.ErrABI, err)
	}

	m := abi.Manifest{ABI: abi.Version, Name: agentWord(name, 32), Version: "0.0.0", Description: "Tools of the hyper-mcp plugin " + name + ".", Tools: []abi.Tool{}}
	for _, t := range tools {
		m.Tools = append(m.Tools, t.tool())
	}
	return json.Marshal(m)
}

// mcpTool is a tool in MCP's format.
type mcpTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  struct {
		Title       string `json:"title"`
		ReadOnly    bool   `json:"readOnlyHint"`
		Destructive *bool  `json:"destructiveHint"`
		Idempotent  bool   `json:"idempotentHint"`
		OpenWorld   *bool  `json:"openWorldHint"`
	} `json:"annotations"`
}

// tool converts the tool to the manifest's form.
func (t mcpTool) tool() abi.Tool {
	a := t.Annotations
	tool := abi.Tool{Name: agentWord(t.Name, abi.MaxAgentName), MCPTool: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema}
	tool.Hints = abi.Hints{Readonly: a.ReadOnly, Idempotent: a.Idempotent, Destructive: a.Destructive, OpenWorld: a.OpenWorld}
	if a.ReadOnly {
		tool.Hints.Destructive = nil // it means nothing in MCP then
	}
	if tool.Title == "" {
		tool.Title = a.Title
	}
	if strings.TrimSpace(tool.Description) == "" {
		tool.Description = t.Name
	}
	if r := []rune(tool.Description); len(r) > abi.MaxDescription {
		tool.Description = string(r[:abi.MaxDescription-1]) + "…"
	}
	if s := string(t.OutputSchema); s != "" && s != "null" {
		tool.OutputSchema = t.OutputSchema
	}
	if s := string(t.InputSchema); s == "" || s == "null" {
		tool.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	return tool
}

// agentWord returns a valid name of a plugin or a tool, with no more characters than most says.
func agentWord(name string, most int) string {
	word := []byte(strings.ToLower(name))
	for i, b := range word {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') {
			word[i] = '_'
		}
	}
	if len(word) == 0 || word[0] < 'a' {
		word = slices.Concat([]byte("p"), word)
	}
	return string(word[:min(len(word), most)])
}
