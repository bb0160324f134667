package plugintest

import (
	"encoding/json"
	"testing/fstest"

	"github.com/toolhost/toolhost/abi"
)

// Office returns a folder of plugins whose tools match different search terms.
func Office() fstest.MapFS {
	tool := func(name, description, input, output string) abi.Tool {
		t := Tool(name)
		t.Description, t.InputSchema = description, json.RawMessage(input)
		if output != "" {
			t.OutputSchema = json.RawMessage(output)
		}
		return t
	}
	plugin := func(name string, tools ...abi.Tool) *fstest.MapFile {
		m := Manifest(name)
		m.Tools = tools
		return &fstest.MapFile{Data: Plugin{Manifest: m, Invoke: Do().Echo()}.Wasm()}
	}

	return fstest.MapFS{
		"mail.wasm": plugin("mail",
			tool("send", "Sends a message to people.", `{"type":"object","required":["to"],"properties":{"to":{"type":"array","items":{"type":"string"}},"subjectLine":{"type":"string"}}}`, `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`),
			tool("list", "Lists the newest messages of a folder.", `{"type":"object","properties":{"folder":{"enum":["inbox","drafts"]}}}`, ``)),
		"files.wasm": plugin("files",
			tool("read", "Returns the text of a file.", `{"type":"object","required":["path"],"properties":{"path":{"type":"string"},"encoding":{"type":"string","description":"such as latin1"}}}`, `{"type":"string"}`),
			tool("write", "Stores a text in a file.", `{"type":"object","required":["path","text"],"properties":{"path":{"type":"string"},"text":{"type":"string"}}}`, ``)),
		"calendar.wasm": plugin("calendar", tool("calendar", "Finds appointments, and categories of them.", `{"type":"object","properties":{"from":{"type":"string","format":"date"}}}`, ``)),
	}
}
