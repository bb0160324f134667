package server

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
)

// The names of the agent's own tools. None of them can be spawned.
const (
	SpawnBackground = "spawn_background"
	CheckBackground = "check_background"
	StopBackground  = "stop_background"
)

var agentNames = []string{SpawnBackground, CheckBackground, StopBackground}

//go:embed schemas
var schemas embed.FS

// agentTool is one of the agent's own tools.
type agentTool struct {
	definition Definition
	input      *schema.Schema
	run        func(ctx context.Context, s *Service, req Request) (any, error)
}

// agentTools returns the three tools, or none if no tool runs in the
// background: a model pays for each definition in every call.
func (s *Service) agentTools() ([]*agentTool, error) {
	if !slices.ContainsFunc(s.Definitions(""), func(d Definition) bool { return d.SupportsBackground || d.MayPark }) {
		return nil, nil
	}
	tools := []*agentTool{{
		definition: Definition{
			Name: SpawnBackground, Title: "Spawn Background",
			Description: "Run a background-capable tool asynchronously. Returns at once with a task_id; use it for long-running tools, then go on with other work: you are told when it ends. With schedule it runs later, or again and again.",
			Annotations: Annotations{Destructive: false},
		},
		run: spawn,
	}, {
		definition: Definition{
			Name: CheckBackground, Title: "Check Background",
			Description: "Status, progress, new output and result of background runs, or the list of them and of schedules. Waits for the end up to wait_seconds: prefer one long wait to many short ones. A call answered with type background goes on as such a run: do not repeat it.",
			Annotations: Annotations{ReadOnly: true, Idempotent: true},
		},
		run: check,
	}, {
		definition: Definition{
			Name: StopBackground, Title: "Stop Background",
			Description: "Stop a background run that is stuck or no longer useful, or a schedule. Answers with its true state: a result that came first is returned and kept.",
			Annotations: Annotations{Destructive: true, Idempotent: true},
		},
		run: stop,
	}}
	for _, t := range tools {
		raw, err := schemas.ReadFile("schemas/" + t.definition.Name + ".json")
		if err != nil {
			return nil, err
		}
		t.definition.InputSchema, _ = json.Marshal(json.RawMessage(raw)) // compact: a model pays for the spaces
		t.definition.Approval, t.definition.Deferrable = abi.ApprovalAuto, abi.DeferNever
		if t.input, err = schema.Compile(raw); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

func (t *agentTool) call(ctx context.Context, s *Service, req Request) (abi.Result, error) {
	if problems := t.input.Check(req.Args); len(problems) > 0 {
		return explain(&ArgsError{t.definition.Name, problems})
	}
	if req.Session == "" {
		return toolError("%s needs a session, and this call has none", t.definition.Name), nil
	}
	answer, err := t.run(ctx, s, req)
	if err != nil {
		return explain(err)
	}
	value, err := encode(answer)
	if err != nil {
		return explain(fmt.Errorf("%s: %w", t.definition.Name, err))
	}
	return abi.Result{Kind: abi.Success, Value: value}, nil
}

// encode is json.Marshal without the escapes for HTML: a model pays for each
// character.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
