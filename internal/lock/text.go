package lock

import (
	"bytes"
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
)

// toolText is everything that decides how a tool is used: the text that models read, the
// sentences and examples for people, and whether a person must approve calls. It omits how
// the tool runs, which the digests of the module and the sidecar cover.
type toolText struct {
	Name         string         `json:"name"` // name by which agents know the tool
	Title        string         `json:"title"`
	Description  string         `json:"description"`
	InputSchema  any            `json:"input_schema"`
	OutputSchema any            `json:"output_schema"`
	Hints        abi.Hints      `json:"hints"`
	Approval     abi.Approval   `json:"approval"`
	Deferrable   abi.Deferrable `json:"deferrable"`
	Narration    abi.Narration  `json:"narrate"`
	Examples     any            `json:"examples"`
}

// ToolDigest returns the digest of a tool's text: name, title, description, schemas, hints,
// approval, narration and examples, as canonical JSON. The name is the one that agents see.
// The order of keys in a schema and its whitespace do not matter.
func ToolDigest(agentName string, t *abi.Tool) (string, error) {
	text := toolText{
		Name: agentName, Title: t.Title, Description: t.Description,
		Hints: t.Hints, Approval: t.Approval, Deferrable: t.Deferrable, Narration: t.Narration,
	}
	examples, err := json.Marshal(t.Examples)
	for _, part := range []struct {
		to   *any
		from json.RawMessage
	}{{&text.InputSchema, t.InputSchema}, {&text.OutputSchema, t.OutputSchema}, {&text.Examples, examples}} {
		if err == nil {
			*part.to, err = decode(part.from)
		}
	}

	var out bytes.Buffer
	if err == nil {
		encoder := json.NewEncoder(&out) // it sorts the keys of maps
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(text)
	}
	if err != nil {
		return "", err
	}
	return Digest(out.Bytes()), nil
}

// decode decodes JSON, and keeps numbers as written.
func decode(data json.RawMessage) (value any, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return value, decoder.Decode(&value)
}
