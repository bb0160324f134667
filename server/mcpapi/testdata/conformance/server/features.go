package main

//lint:file-ignore SA1019 the suite wants what 2026-07-28 deprecates of a server too

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tasksExtension is that of SEP-2663.
const tasksExtension = "io.modelcontextprotocol/tasks"

// features are what the suite wants to see beside the tools of the plugins.
type features struct{ server *mcp.Server }

func (f *features) options(o *mcp.ServerOptions) {
	o.Capabilities.Tools.ListChanged = true
	o.Capabilities.Resources = nil // as the SDK infers it
	o.Capabilities.Logging = &mcp.LoggingCapabilities{}
	o.CompletionHandler = func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
	}
	o.SubscribeHandler = func(context.Context, *mcp.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *mcp.UnsubscribeRequest) error { return nil }
}

func (f *features) add(s *mcp.Server) {
	f.server = s
	f.addTools(s)
	addResources(s)
	addPrompts(s)
	s.AddReceivingMiddleware(requireTask, rename)
}

// rename serves a name that is longer than those of plugins' tools may be.
func rename(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok && call.Params.Name == "test_input_required_result_tampered_state" {
			call.Params.Name = "test_input_required_result_request_state"
		}
		return next(ctx, method, req)
	}
}

// requireTask refuses one tool to clients without tasks, which the suite wants
// of one tool, and a host of tools had better never do.
func requireTask(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok && call.Params.Name == "failing_job" {
			can := call.ClientCapabilities()
			if can == nil || can.Extensions[tasksExtension] == nil {
				return nil, missing(&mcp.ClientCapabilities{Extensions: map[string]any{tasksExtension: struct{}{}}})
			}
		}
		return next(ctx, method, req)
	}
}

func missing(needs *mcp.ClientCapabilities) error {
	data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{RequiredCapabilities: needs})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client lacks a capability", Data: data}
}

// textResult is a result of one text.
func textResult(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func addTool(s *mcp.Server, name string, h mcp.ToolHandler) {
	addToolWith(s, name, `{"type":"object"}`, h)
}

func addToolWith(s *mcp.Server, name, schema string, h mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, Description: "A tool of the conformance suite.", InputSchema: json.RawMessage(schema)}, h)
}

// wideSchema uses keywords at its root that plugins may not, because some model
// APIs refuse them.
const wideSchema = `{
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
          "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
          }
        },
        "properties": {
          "name": {"type": "string"},
          "address": {"$ref": "#/$defs/address"},
          "contactMethod": {"type": "string", "enum": ["phone", "email"]},
          "phone": {"type": "string"},
          "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
}`

func (f *features) addTools(s *mcp.Server) {
	addTool(s, "test_tool_with_logging", logging)
	addTool(s, "test_logging_tool", logging)
	addTool(s, "test_sampling", sample)
	addToolWith(s, "json_schema_2020_12_tool", wideSchema, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult("called with %s", req.Params.Arguments), nil
	})
	addTool(s, "test_missing_capability", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if can := req.ClientCapabilities(); can == nil || can.Sampling == nil {
			return nil, missing(&mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}})
		}
		return textResult("the client samples"), nil
	})
	addTool(s, "test_trigger_tool_change", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		addTool(f.server, "zz_transient", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("there"), nil
		})
		return textResult("changed"), nil
	})
	addTool(s, "test_trigger_prompt_change", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		f.server.AddPrompt(&mcp.Prompt{Name: "zz_transient", Description: "A prompt that comes later."}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
		return textResult("changed"), nil
	})
	addTool(s, "test_input_required_result_sampling", wants(map[string]mcp.InputRequest{"capital_question": capital}))
	addTool(s, "test_input_required_result_list_roots", wants(map[string]mcp.InputRequest{"client_roots": &mcp.ListRootsParams{}}))
	addTool(s, "test_input_required_result_multiple_inputs", wants(map[string]mcp.InputRequest{
		"user_name": whoAreYou, "greeting": capital, "client_roots": &mcp.ListRootsParams{},
	}))
	addTool(s, "test_input_required_result_capabilities", wants(map[string]mcp.InputRequest{"user_name": whoAreYou, "greeting": capital}))
}

func logging(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for _, what := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: what}); err != nil {
			return nil, err
		}
	}
	return textResult("logged"), nil
}

func sample(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct{ Prompt string }
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
		return nil, err
	}
	r, err := req.Session.CreateMessage(ctx, sampling(in.Prompt))
	if err != nil {
		return nil, err
	}
	text, ok := r.Content.(*mcp.TextContent)
	if !ok {
		return textResult("LLM response: no text"), nil
	}
	return textResult("LLM response: %s", text.Text), nil
}

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{MaxTokens: 100, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}}}
}

var (
	capital   = sampling("What is the capital of France?")
	whoAreYou = &mcp.ElicitParams{Mode: "form", Message: "What is your name?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)}
)

// wants makes a tool that wants all of these of the client, so far as it can.
func wants(requests mcp.InputRequestMap) mcp.ToolHandler {
	return func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		open := mcp.InputRequestMap{}
		for key, r := range requests {
			if req.Params.InputResponses[key] == nil && able(req.ClientCapabilities(), r) {
				open[key] = r
			}
		}
		if len(open) > 0 {
			return &mcp.CallToolResult{InputRequests: open, RequestState: "asked"}, nil
		}
		return textResult("the client answered %d requests", len(req.Params.InputResponses)), nil
	}
}

func able(can *mcp.ClientCapabilities, r mcp.InputRequest) bool {
	switch r.(type) {
	case *mcp.ElicitParams:
		return can != nil && can.Elicitation != nil
	case *mcp.CreateMessageParams:
		return can != nil && can.Sampling != nil
	}
	return can != nil && can.RootsV2 != nil
}

const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="

func pictureData() []byte {
	data, err := base64.StdEncoding.DecodeString(picture)
	if err != nil {
		panic(err)
	}
	return data
}

func addResources(s *mcp.Server) {
	add := func(name, mime string, c mcp.ResourceContents) {
		uri := "test://" + name
		s.AddResource(&mcp.Resource{Name: name, Description: "A resource of the conformance suite.", MIMEType: mime, URI: uri},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				c := c
				c.URI, c.MIMEType = uri, mime
				return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&c}}, nil
			})
	}
	add("static-text", "text/plain", mcp.ResourceContents{Text: "This is the content of the static text resource."})
	add("static-binary", "image/png", mcp.ResourceContents{Blob: pictureData()})
	add("watched-resource", "text/plain", mcp.ResourceContents{Text: "Watched resource content"})
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "template", MIMEType: "application/json", URITemplate: "test://template/{id}/data"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			text := fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id)
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: text}}}, nil
		})
}

func addPrompts(s *mcp.Server) {
	add := func(name string, arguments []string, messages func(map[string]string) []mcp.Content) {
		p := &mcp.Prompt{Name: name, Description: "A prompt of the conformance suite."}
		for _, a := range arguments {
			p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "An argument.", Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			r := &mcp.GetPromptResult{Description: p.Description}
			for _, c := range messages(req.Params.Arguments) {
				r.Messages = append(r.Messages, &mcp.PromptMessage{Role: "user", Content: c})
			}
			return r, nil
		})
	}
	text := func(s string) mcp.Content { return &mcp.TextContent{Text: s} }
	add("test_simple_prompt", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{text("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(args map[string]string) []mcp.Content {
		return []mcp.Content{text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"]))}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(args map[string]string) []mcp.Content {
		resource := &mcp.ResourceContents{URI: args["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}
		return []mcp.Content{&mcp.EmbeddedResource{Resource: resource}, text("Please process the embedded resource above.")}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{&mcp.ImageContent{Data: pictureData(), MIMEType: "image/png"}, text("Please analyze the image above.")}
	})
	s.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "Asks for context."}, contextPrompt)
}

// contextPrompt asks before it answers.
func contextPrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	if r, ok := req.Params.InputResponses["user_context"].(*mcp.ElicitResult); ok && r.Action == "accept" {
		text := &mcp.TextContent{Text: fmt.Sprintf("Context: %v", r.Content["context"])}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: text}}}, nil
	}
	return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"user_context": &mcp.ElicitParams{
		Mode: "form", Message: "Please provide context for the prompt",
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`),
	}}}, nil
}
