package abi

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each model API gets a result in its own form.
func TestModelResults(t *testing.T) {
	const png, png64 = "\x89PNG\r\n\x1a\n", "iVBORw0KGgo="
	picture := []Block{{Type: "text", Text: "A chart."}, {Type: "image", Data: []byte(png), MIMEType: "image/png"}, {Type: "audio", Data: []byte("abcd"), MIMEType: "audio/wav"},
		{Type: "resource_link", URI: "https://example.com/", Name: "more"}, {Type: "resource", URI: "note://1", Text: "a note"}}
	for name, c := range map[string]struct {
		result                               Result
		anthropic, openAI, responses, gemini string
	}{
		"a value": {
			Result{Kind: Success, Value: json.RawMessage(`{"n":1}`)},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"{\"n\":1}"}]}`,
			`{"role":"tool","tool_call_id":"c1","content":"{\"n\":1}"}`,
			`{"type":"function_call_output","call_id":"c1","output":"{\"n\":1}"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"output":{"n":1}}}}`,
		},
		"nothing": {
			Result{Kind: Success},
			`{"type":"tool_result","tool_use_id":"c1"}`,
			`{"role":"tool","tool_call_id":"c1","content":""}`,
			`{"type":"function_call_output","call_id":"c1","output":""}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{}}}`,
		},
		"an error": {
			Result{Kind: ToolError, Error: "no luck", Content: []Block{{Type: "text", Text: "as follows"}}},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"no luck"},{"type":"text","text":"as follows"}],"is_error":true}`,
			`{"role":"tool","tool_call_id":"c1","content":"no luck\nas follows"}`,
			`{"type":"function_call_output","call_id":"c1","output":"no luck\nas follows"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"error":"no luck","content":["as follows"]}}}`,
		},
		"an error with a picture": {
			Result{Kind: ToolError, Error: "no luck", Content: []Block{{Type: "image", Data: []byte(png), MIMEType: "image/png"}}},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"no luck"},{"type":"text","text":"[image: image/png, 8 bytes, which cannot be shown here]"}],"is_error":true}`,
			`{"role":"tool","tool_call_id":"c1","content":"no luck\n[image: image/png, 8 bytes, which cannot be shown here]"}`,
			`{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"no luck"},{"type":"input_image","image_url":"data:image/png;base64,` + png64 + `"}]}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"error":"no luck"},"parts":[{"inlineData":{"mimeType":"image/png","data":"` + png64 + `"}}]}}`,
		},
		"white space": {
			Result{Kind: Success, Content: []Block{{Type: "text", Text: " \n"}}},
			`{"type":"tool_result","tool_use_id":"c1"}`,
			`{"role":"tool","tool_call_id":"c1","content":" \n"}`,
			`{"type":"function_call_output","call_id":"c1","output":" \n"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"content":[" \n"]}}}`,
		},
		"an error without words": {
			Result{Kind: ToolError, Error: " "},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"the tool failed without a message"}],"is_error":true}`,
			`{"role":"tool","tool_call_id":"c1","content":" "}`,
			`{"type":"function_call_output","call_id":"c1","output":" "}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"error":" "}}}`,
		},
		"a picture of another type": {
			Result{Kind: Success, Content: []Block{{Type: "image", Data: []byte(png), MIMEType: "image/jpeg"}}},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"[image: image/jpeg, 8 bytes, which cannot be shown here]"}]}`,
			`{"role":"tool","tool_call_id":"c1","content":"[image: image/jpeg, 8 bytes, which cannot be shown here]"}`,
			`{"type":"function_call_output","call_id":"c1","output":"[image: image/jpeg, 8 bytes, which cannot be shown here]"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"content":["[image: image/jpeg, 8 bytes, which cannot be shown here]"]}}}`,
		},
		"a plugin that broke": {
			Result{Kind: Internal, Error: InternalMessage, Content: picture},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"` + InternalMessage + `"}],"is_error":true}`,
			`{"role":"tool","tool_call_id":"c1","content":"` + InternalMessage + `"}`,
			`{"type":"function_call_output","call_id":"c1","output":"` + InternalMessage + `"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"error":"` + InternalMessage + `"}}}`,
		},
		"a connection": {
			Result{Kind: ConnectionRequired, Error: "connect mail first"},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"connect mail first"}]}`,
			`{"role":"tool","tool_call_id":"c1","content":"connect mail first"}`,
			`{"type":"function_call_output","call_id":"c1","output":"connect mail first"}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"output":"connect mail first"}}}`,
		},
		"content": {
			Result{Kind: Success, Content: picture},
			`{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"A chart."},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png64 + `"}},` +
				`{"type":"text","text":"[audio: audio/wav, 4 bytes, which cannot be shown here]"},{"type":"text","text":"[more](https://example.com/)"},{"type":"text","text":"note://1\na note"}]}`,
			`{"role":"tool","tool_call_id":"c1","content":"A chart.\n[image: image/png, 8 bytes, which cannot be shown here]\n[audio: audio/wav, 4 bytes, which cannot be shown here]\n[more](https://example.com/)\nnote://1\na note"}`,
			`{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"A chart."},{"type":"input_image","image_url":"data:image/png;base64,` + png64 + `"},` +
				`{"type":"input_text","text":"[audio: audio/wav, 4 bytes, which cannot be shown here]"},{"type":"input_text","text":"[more](https://example.com/)"},{"type":"input_text","text":"note://1\na note"}]}`,
			`{"functionResponse":{"id":"c1","name":"tool","response":{"content":["A chart.","[audio: audio/wav, 4 bytes, which cannot be shown here]","[more](https://example.com/)","note://1\na note"]},` +
				`"parts":[{"inlineData":{"mimeType":"image/png","data":"` + png64 + `"}}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.JSONEq(t, c.anthropic, string(c.result.Anthropic("c1")))
			require.JSONEq(t, c.openAI, string(c.result.OpenAI("c1")))
			require.JSONEq(t, c.responses, string(c.result.OpenAIResponses("c1")))
			require.JSONEq(t, c.gemini, string(c.result.Gemini("c1", "tool")))
		})
	}
	require.JSONEq(t, `{"functionResponse":{"name":"tool","response":{}}}`, string(Result{Kind: Success}.Gemini("", "tool")), "a call without an id")
}

// An image is recognized by its first bytes.
func TestIsImage(t *testing.T) {
	for media, data := range map[string]string{"image/jpeg": "\xff\xd8\xff\xe0", "image/png": "\x89PNG\r\n\x1a\n\x00", "image/gif": "GIF89a", "image/webp": "RIFF\x00\x00\x00\x00WEBPVP8 "} {
		for _, other := range webImages {
			require.Equal(t, other == media, IsImage(other, []byte(data)), "%s as %s", media, other)
		}
		require.False(t, IsImage(media, []byte(data[:2])))
		require.False(t, IsImage(media, nil))
	}
	require.False(t, IsImage("image/webp", []byte("RIFF\x00\x00\x00\x00WAVE")))
}
