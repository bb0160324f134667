package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"testing/fstest"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
)

// folder stands for plugins.Dir("plugins"), a folder of plugin files.
var folder = plugins.Folder{Path: "plugins", FS: fstest.MapFS{"echo.wasm": {Data: echo()}}}

func echo() []byte {
	m := plugintest.Manifest("echo")
	m.Tools[0].Hints.SupportsBackground = true
	return plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()
}

// All an agent app needs: the tools' definitions for its model, and a place to
// pass each call to a tool to.
func ExampleOpen() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)

	var tools []json.RawMessage // for the request to the model
	for _, d := range service.Definitions("session-1") {
		tools = append(tools, d.Anthropic())
	}
	fmt.Println(len(tools), "tools, the first is", string(tools[0]))

	// The model answers with a tool's name and its arguments.
	result, err := service.Call(ctx, server.Request{Session: "session-1", Tool: "echo", Args: json.RawMessage(`{"text":"hello"}`)})
	if err != nil {
		log.Print(err) // for the operator; the result is for the model in any case
	}
	fmt.Println(result.Kind, string(result.Value), result.Error)

	// Output:
	// 4 tools, the first is {"name":"echo","description":"Made for a test.","input_schema":{"type":"object","properties":{}}}
	// success {"text":"hello"}
}

// What takes long the model spawns, and looks at later, with tools of its
// own. They are called like any other.
func ExampleService_Call_background() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)

	call := func(tool, args string, answer any) {
		result, err := service.Call(ctx, server.Request{Session: "session-1", Tool: tool, Args: json.RawMessage(args)})
		if err != nil || result.Kind != abi.Success {
			log.Fatal(result.Error, err)
		}
		if err := json.Unmarshal(result.Value, answer); err != nil {
			log.Fatal(err)
		}
	}
	var run struct {
		ID     string          `json:"task_id"`
		Status string          `json:"status"`
		Result json.RawMessage `json:"result"`
	}
	call(server.SpawnBackground, `{"tool":"echo","args":{"text":"hello"},"title":"Say hello"}`, &run)
	call(server.CheckBackground, `{"task_id":"`+run.ID+`","wait_seconds":540}`, &run)
	fmt.Println(run.Status, string(run.Result))

	// Output:
	// succeeded {"text":"hello"}
}

// When a run has ended its session is notified: before each turn of the model, put
// the notices before it and acknowledge them.
func ExampleSession_Notices() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)
	session := service.Session("session-1")

	run, err := session.Spawn(ctx, server.SpawnRequest{Tool: "echo", Title: "Say hello"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Check(ctx, server.CheckRequest{IDs: []string{run.TaskID}, Wait: time.Minute}); err != nil { // the program's, not the agent's
		log.Fatal(err)
	}

	notices, err := session.Notices(ctx, 0)
	if err != nil {
		log.Fatal(err)
	}
	var ids []string
	for _, n := range notices.Notices {
		fmt.Println(n.Status, n.Title)
		ids = append(ids, n.TaskID)
	}
	fmt.Println(strings.Count(notices.Text, "\n"), "lines") // notices.Text is for the request to the model, as data
	if err := session.Acknowledge(ctx, ids); err != nil {
		log.Fatal(err)
	}

	// Output:
	// succeeded Say hello
	// 2 lines
}

// A program has tools of its own next to those of its plugins.
func ExampleService_Register() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Close(ctx)

	type args struct {
		Order string `json:"order" desc:"Number of the order" pattern:"^A[0-9]+$"`
	}
	type status struct {
		State string `json:"state" enum:"packed,shipped"`
	}
	err = service.Register(gotool.Tool{
		Name: "order_status", Description: "Where an order is.",
		Hints: abi.Hints{Readonly: true},
		Handler: gotool.Handle(func(ctx context.Context, c *gotool.Call, in args) (status, error) {
			c.Log().Info("looking up", "order", in.Order)
			return status{"shipped"}, nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}

	for _, call := range []string{`{"order":"A7"}`, `{"order":"7"}`} {
		result, _ := service.Call(ctx, server.Request{Session: "session-1", Tool: "order_status", Args: json.RawMessage(call)})
		fmt.Println(result.Kind, cmp.Or(string(result.Value), result.Error))
	}

	// Output:
	// success {"state":"shipped"}
	// tool_error the arguments of order_status do not fit its schema: /order: '7' does not match pattern '^A[0-9]+$'
}
