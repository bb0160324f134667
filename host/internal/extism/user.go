package extism

import (
	"encoding/json"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/answer"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
)

var mcpFunctions = map[string]function{
	"notify_progress":              {one, none, notifyProgress},
	"notify_logging_message":       {one, none, notifyLog},
	"notify_tool_list_changed":     {none, none, ignore},
	"notify_prompt_list_changed":   {none, none, ignore},
	"notify_resource_list_changed": {none, none, ignore},
	"notify_resource_updated":      {one, none, ignore},
	"list_roots": {none, one, func(c *Call, k *Kernel, stack []uint64) {
		stack[0] = c.put(k, []byte(`{"roots":[]}`))
	}},
	"create_elicitation": {one, one, createElicitation},
	"create_message":     lacking("create_message, which asks the client's model"),
}

// ignore implements functions that have no effect here.
func ignore(*Call, *Kernel, []uint64) {}

// lacking returns a function that ends the call.
func lacking(what string) function {
	return function{one, one, func(*Call, *Kernel, []uint64) { panic(fail("this host has no " + what)) }}
}

// createElicitation is hyper-mcp's create_elicitation: the operation ask with one question.
// It waits until the call's time limit, and ignores the plugin's timeout. If the user cannot
// be asked, the call ends.
func createElicitation(c *Call, k *Kernel, stack []uint64) {
	var in struct {
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
	}
	if err := json.Unmarshal(c.block(k, stack[0]), &in); err != nil {
		panic(fail("create_elicitation: " + err.Error()))
	}

	const only = "question"
	var answers abi.Answers
	c.perform("ask", guestcall.JSON(abi.Questions{Questions: map[string]abi.Question{only: {Message: in.Message, Schema: in.Schema}}}), &answers)
	stack[0] = c.put(k, guestcall.JSON(answers.Answers[only]))
}

// notifyProgress is hyper-mcp's notify_progress. It ignores invalid reports.
func notifyProgress(c *Call, k *Kernel, stack []uint64) {
	in := struct {
		Progress, Total float64
		Message         string
	}{Total: -1}
	if json.Unmarshal(c.block(k, stack[0]), &in) != nil || in.Progress < 0 || c.Ops.Describing {
		return
	}
	c.Ops.Said.Done, c.Ops.Said.Total, c.Ops.Said.Message = in.Progress, in.Total, answer.Clip(in.Message, answer.MaxMessage)
	c.Ops.SayProgress()
}

// notifyLog is hyper-mcp's notify_logging_message, which goes to the host's log.
func notifyLog(c *Call, k *Kernel, stack []uint64) {
	var in struct {
		Level string
		Data  json.RawMessage
	}
	text := c.block(k, stack[0])
	if json.Unmarshal(text, &in) == nil && len(in.Data) > 0 {
		text = in.Data
	}
	stream := abi.StreamInfo
	switch in.Level {
	case "debug":
		stream = abi.StreamDebug
	case "warning":
		stream = abi.StreamWarn
	case "error", "critical", "alert", "emergency":
		stream = abi.StreamErrorLog
	}
	c.logCounted(stream, text)
}

// modules lists the modules that Extism plugins import from, with their functions.
var modules = map[string]map[string]function{contract.ExtismModule: functions, contract.ExtismUser: mcpFunctions}
