package abi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The media types of the images that model APIs accept in a tool's result.
var (
	webImages    = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	geminiImages = []string{"image/jpeg", "image/png", "image/webp"}
)

// Anthropic returns the result for Anthropic's Messages API: a tool_result block, for the
// tool_use block with that id. Sounds and unsupported images are replaced by a description in
// text; errors cannot contain images. Blank texts are left out, and an error always has a text.
func (r Result) Anthropic(id string) json.RawMessage {
	type source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"`
	}
	type block struct {
		Type   string  `json:"type"`
		Text   string  `json:"text,omitempty"`
		Source *source `json:"source,omitempty"`
	}
	images := webImages
	if r.IsError() {
		images = nil
	}
	var content []block
	for _, p := range r.parts(images) {
		if p.data != nil {
			content = append(content, block{Type: "image", Source: &source{"base64", p.mediaType, p.data}})
		} else if strings.TrimSpace(p.text) != "" {
			content = append(content, block{Type: "text", Text: p.text})
		}
	}
	if len(content) == 0 && r.IsError() {
		content = []block{{Type: "text", Text: "the tool failed without a message"}}
	}

	return marshal(struct {
		Type      string  `json:"type"`
		ToolUseID string  `json:"tool_use_id"`
		Content   []block `json:"content,omitempty"`
		IsError   bool    `json:"is_error,omitempty"`
	}{"tool_result", id, content, r.IsError()})
}

// OpenAI returns the result for OpenAI's Chat Completions API: a message with the role tool,
// for the tool call with that id. Such messages contain only text, so images and sounds are
// replaced by a description.
func (r Result) OpenAI(id string) json.RawMessage {
	return marshal(struct {
		Role       string `json:"role"`
		ToolCallID string `json:"tool_call_id"`
		Content    string `json:"content"`
	}{"tool", id, texts(r.parts(nil))})
}

// OpenAIResponses returns the result for OpenAI's Responses API: a function_call_output item,
// for the function_call item with that call_id. Sounds and unsupported images are replaced by a
// description in text.
func (r Result) OpenAIResponses(callID string) json.RawMessage {
	type item struct {
		Type     string `json:"type"`
		Text     string `json:"text,omitempty"`
		ImageURL string `json:"image_url,omitempty"`
	}
	parts := r.parts(webImages)
	var output any = texts(parts)
	if slices.ContainsFunc(parts, func(p modelPart) bool { return p.data != nil }) {
		items := []item{}
		for _, p := range parts {
			if p.data != nil {
				items = append(items, item{Type: "input_image", ImageURL: p.dataURL()})
			} else {
				items = append(items, item{Type: "input_text", Text: p.text})
			}
		}
		output = items
	}

	return marshal(struct {
		Type   string `json:"type"`
		CallID string `json:"call_id"`
		Output any    `json:"output"`
	}{"function_call_output", callID, output})
}

// Gemini returns the result for the Gemini API: a part with a functionResponse, for the
// functionCall with that id and name. The id is empty if the call has none. Only Gemini 3 and
// later accept images in a functionResponse. Sounds and unsupported images are replaced by a
// description in text.
func (r Result) Gemini(id, name string) json.RawMessage {
	type blob struct {
		MIMEType string `json:"mimeType"`
		Data     []byte `json:"data"`
	}
	type media struct {
		InlineData blob `json:"inlineData"`
	}
	type response struct {
		ID       string         `json:"id,omitempty"`
		Name     string         `json:"name"`
		Response map[string]any `json:"response"`
		Parts    []media        `json:"parts,omitempty"`
	}
	out := response{ID: id, Name: name, Response: map[string]any{}}
	switch {
	case r.IsError():
		out.Response["error"] = r.Error
	case r.IsSuccess() && r.Value != nil:
		out.Response["output"] = r.Value
	case !r.IsSuccess():
		out.Response["output"] = r.Error
	}

	var content []string
	for _, p := range r.contentParts(geminiImages) {
		if p.data != nil {
			out.Parts = append(out.Parts, media{blob{p.mediaType, p.data}})
		} else {
			content = append(content, p.text)
		}
	}
	if content != nil {
		out.Response["content"] = content
	}
	return marshal(map[string]response{"functionResponse": out})
}

// modelPart is a part of a result: a text, or an image.
type modelPart struct {
	text      string
	mediaType string
	data      []byte // nil for a text
}

func (p modelPart) dataURL() string {
	encoded, _ := json.Marshal(p.data) // base64 in quotes
	return "data:" + p.mediaType + ";base64," + strings.Trim(string(encoded), `"`)
}

// IsImage reports whether data begins with the signature of an image of the given media type:
// image/jpeg, image/png, image/gif or image/webp. It does not decode the image.
func IsImage(media string, data []byte) bool {
	// Package net/http would know more types, but would be part of every plugin.
	head := string(data[:min(len(data), len("RIFF....WEBP"))])
	switch media {
	case "image/jpeg":
		return strings.HasPrefix(head, "\xff\xd8\xff")
	case "image/png":
		return strings.HasPrefix(head, "\x89PNG\r\n\x1a\n")
	case "image/gif":
		return strings.HasPrefix(head, "GIF87a") || strings.HasPrefix(head, "GIF89a")
	case "image/webp":
		return strings.HasPrefix(head, "RIFF") && strings.HasSuffix(head, "WEBP")
	}
	return false
}

// parts returns the text of the result and its content. Images whose types are not listed become
// texts.
func (r Result) parts(images []string) (all []modelPart) {
	if text := r.Text(); text != "" {
		all = append(all, modelPart{text: text})
	}
	return append(all, r.contentParts(images)...)
}

// contentParts returns the content blocks of the result. There are none for a broken
// plugin or a stopped call: what these leave behind does not help a model.
func (r Result) contentParts(images []string) (all []modelPart) {
	if r.Kind != Success && r.Kind != ToolError {
		return nil
	}
	for _, b := range r.Content {
		p := modelPart{text: b.words()}
		if media, _ := mediaType(b.MIMEType); b.Type == "image" && slices.Contains(images, media) && IsImage(media, b.Data) {
			p = modelPart{mediaType: media, data: b.Data}
		}
		if p.data != nil || p.text != "" {
			all = append(all, p)
		}
	}
	return all
}

// words returns the text that a model reads in place of the block, without its media.
func (b Block) words() string {
	switch b.Type {
	case "text":
		return b.Text
	case "resource":
		return b.URI + "\n" + b.Text
	case "resource_link":
		return fmt.Sprintf("[%s](%s)", b.Name, b.URI)
	}
	return fmt.Sprintf("[%s: %s, %d bytes, which cannot be shown here]", b.Type, b.MIMEType, len(b.Data))
}

// texts joins parts that are all texts.
func texts(parts []modelPart) string {
	lines := make([]string, len(parts))
	for i, p := range parts {
		lines[i] = p.text
	}
	return strings.Join(lines, "\n")
}

func marshal(v any) json.RawMessage {
	data, _ := json.Marshal(v) // cannot fail: strings, bytes, and a value that is JSON
	return data
}
