package server

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/reason"
)

// The names of the agent's own tools. None of them can be spawned.
const (
	SpawnBackground   = "spawn_background"
	CheckBackground   = "check_background"
	StopBackground    = "stop_background"
	MessageBackground = "message_background"
	ToolsSearch       = "tools_search"
)

// How the end of a run reaches its caller, see [Request.Unnamed].
const (
	EndsNotified = "its end comes with a later tool result"
	EndsChecked  = "wait for its end with " + CheckBackground
)

// EndsHow says how the caller learns of the end of a run.
func (r Request) EndsHow() string {
	if r.Unnamed {
		return EndsChecked
	}
	return EndsNotified
}

var agentNames = []string{SpawnBackground, CheckBackground, StopBackground, MessageBackground, ToolsSearch}

// IsAgentTool reports whether a name is that of one of the agent's own tools.
func IsAgentTool(name string) bool { return slices.Contains(agentNames, name) }

//go:embed schemas
var schemas embed.FS

// agentTool is one of the agent's own tools.
type agentTool struct {
	definition Definition
	schema     json.RawMessage // accepted arguments; models see less, see shownSchema
	input      *schema.Schema
	anywhere   bool      // works without a session
	found      *abi.Tool // what a search finds
	run        func(ctx context.Context, s *Service, req Request) (any, error)
}

// agentTools returns the agent's own tools.
func agentTools() ([]*agentTool, error) {
	tools := []*agentTool{{
		definition: Definition{
			Name: SpawnBackground, Title: "Spawn Background",
			Description: "Run a tool in the background. Returns a task_id at once; continue with other work: " + EndsNotified + ". With schedule it runs later.",
			Annotations: Annotations{Destructive: false},
		},
		run: spawn,
	}, {
		definition: Definition{
			Name: CheckBackground, Title: "Check Background",
			Description: "Status, progress, new output and result of background runs, or the list of them and of schedules. Waits for the end: prefer one long wait to many short ones. A call answered with type background is such a run: do not repeat it.",
			Annotations: Annotations{ReadOnly: true, Idempotent: true},
		},
		run: check,
	}, {
		definition: Definition{
			Name: StopBackground, Title: "Stop Background",
			Description: "Stop a background run, or a schedule. A result that came first is returned and kept.",
			Annotations: Annotations{Destructive: true, Idempotent: true},
		},
		run: stop,
	}, {
		definition: Definition{
			Name: MessageBackground, Title: "Message Background",
			Description: "Send a message to an active background run. The descriptions of tools that read messages say what to send.",
			Annotations: Annotations{Destructive: false},
		},
		run: message,
	}, {
		definition: Definition{
			Name: ToolsSearch, Title: "Search Tools",
			Description: "Find tools that are not listed here, with their TypeScript declarations. Call them by name.",
			Annotations: Annotations{ReadOnly: true, Idempotent: true},
		},
		anywhere: true,
		run:      searchTools,
	}}
	for _, t := range tools {
		raw, err := schemas.ReadFile("schemas/" + t.definition.Name + ".json")
		if err != nil {
			return nil, err
		}

		t.schema = raw
		t.definition.Approval, t.definition.Deferrable = abi.ApprovalAuto, abi.DeferNever
		if t.input, err = schema.Compile(raw); err != nil {
			return nil, err
		}
		t.found = &abi.Tool{Title: t.definition.Title, Description: t.definition.Description, InputSchema: shownSchema(raw, nil)}
	}

	return tools, nil
}

// offered returns those of the agent's tools that a model can call. A model pays for each
// definition in every call, so tools without a use are left out. If some tool runs in the
// background, all but message_background are offered, and that one too if such a tool reads
// messages. While there are runs, check and stop are always offered: a reload may have
// removed the last background tool. The search is offered if there is something to find.
func (s *toolset) offered(tools []*callable, runs *background.Manager) []*agentTool {
	hidden := map[string]bool{
		MessageBackground: !slices.ContainsFunc(tools, func(t *callable) bool { return s.reads(t, runs) }),
		ToolsSearch:       !s.searches(tools),
	}
	if !slices.ContainsFunc(tools, func(t *callable) bool { return t.Denied() == nil && s.backs(t) }) {
		hidden[SpawnBackground] = true
		if !hasRuns(context.Background(), runs) {
			hidden[CheckBackground], hidden[StopBackground], hidden[MessageBackground] = true, true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(s.agent), func(a *agentTool) bool { return hidden[a.definition.Name] })
}

// backs reports whether a tool can run in the background.
func (s *toolset) backs(t *callable) bool { return t.Tool.Hints.SupportsBackground || t.rules.parks(t) }

// reads reports whether a tool may have runs that read messages. A tool that has lost its
// grants may still have active ones.
func (s *toolset) reads(t *callable, runs *background.Manager) bool {
	switch {
	case !t.Tool.Hints.Messages || !s.backs(t):
		return false
	case t.Denied() == nil:
		return true
	}
	active, err := runs.List(context.Background(), engine.Query{Active: true, Limit: 1, Filter: engine.Filter{Tool: t.Name}})
	return err != nil || len(active) > 0
}

// offeredNames returns the names of the agent's tools that models see.
func (s *toolset) offeredNames(runs *background.Manager) (names []string) {
	for _, a := range s.offered(s.callables(), runs) {
		names = append(names, a.definition.Name)
	}
	return names
}

// agentTool returns one of the agent's tools by its name; nil if models do not see it.
func (s *toolset) agentTool(name string, runs *background.Manager) *agentTool {
	if !slices.Contains(agentNames, name) {
		return nil
	}
	offered := s.offered(s.callables(), runs)
	if i := slices.IndexFunc(offered, func(a *agentTool) bool { return a.definition.Name == name }); i >= 0 {
		return offered[i]
	}
	return nil
}

// defineAgent returns the definition of an agent tool, as models see it next to those tools.
func (s *toolset) defineAgent(a *agentTool, tools []*callable) Definition {
	scripted := scripts(tools)
	d := a.definition
	d.Deferred = s.defersAgent(d.Name, scripted)

	names, readers := s.backgroundNames(tools)
	var hidden []string
	if s.now().cfg.Runs.Schedules < 0 {
		hidden = []string{"schedule", "schedule_id"}
	}
	switch {
	case d.Name == MessageBackground && len(readers) <= maxEnum:
		d.Description += " They are: " + strings.Join(readers, ", ") + "."
	case d.Name == ToolsSearch && scripted:
		d.Description = textSearchScripted
	case d.Name == CheckBackground && s.defersAgent(SpawnBackground, scripted):
		d.Description = textCheckShort
		hidden = append(hidden, "until", "cursor", "max_chars")
	}
	d.InputSchema = shownSchema(a.schema, names, hidden...)
	return d
}

// The definitions of the agent's tools for a model that also has a tool that runs
// scripts.
const (
	textSearchScripted = "Find the tools that scripts of " + Exec + " can call, as tools.NAME(args), with their TypeScript declarations."
	textCheckShort     = "Wait for calls that continue in the background (answered with type background: do not repeat those). Answers status, output and result."
)

// backgroundNames returns the tools that can be spawned, and those that read messages. If
// a tool that can be spawned is deferred, it returns no names: a schema that lists names
// would exclude that tool.
func (s *toolset) backgroundNames(tools []*callable) (names, readers []string) {
	some := true
	for _, t := range tools { // sorted by name
		if t.Denied() == nil && t.Tool.Hints.SupportsBackground {
			names = append(names, t.Name)
			some = some && !s.deferred(t)
		}
		if t.Tool.Hints.Messages && s.backs(t) && !s.deferred(t) {
			readers = append(readers, t.Name)
		}
	}
	if !some {
		names = nil
	}
	return names, readers
}

// answerAgent is the stage that answers the calls of the agent's own tools.
func (s *Service) answerAgent(next callFunc) callFunc {
	return func(ctx context.Context, c call) (abi.Result, error) {
		if a := s.agentTool(c.Tool, s.runs); a != nil {
			c.note.Known = true
			return a.call(ctx, s, c.Request)
		}
		return next(ctx, c)
	}
}

// offerRuns shows models the tools for runs, which are hidden while there are no runs.
func (s *Service) offerRuns() {
	if s.agentTool(SpawnBackground, s.runs) == nil {
		s.changed.Send()
	}
}

func (t *agentTool) call(ctx context.Context, s *Service, req Request) (abi.Result, error) {
	req.Parsed = coerced(t.schema, req.Parsed)
	req.Args = req.Parsed.Raw()
	if problems := t.input.CheckObject(req.Parsed); len(problems) > 0 {
		return reason.Explain(reason.BadArgs(t.definition.Name, problems))
	}
	if req.Session == "" && !t.anywhere {
		return reason.ToolError("%s needs a session, and this call has none", t.definition.Name), nil
	}

	answer, err := t.run(ctx, s, req)
	if errors.Is(err, plugins.ErrNoTool) { // the tool to run: the agent can name another
		r, _ := reason.Explain(err)
		return r, nil
	}
	if err != nil {
		return reason.Explain(err)
	}
	value, err := encode(answer)
	if err != nil {
		return reason.Explain(fmt.Errorf("%s: %w", t.definition.Name, err))
	}

	return abi.Result{Kind: abi.Success, Value: value}, nil
}

// encode is json.Marshal without HTML escapes: a model pays for each character.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// textMore is the tool that shows an agent the rest of a shortened list.
const textMore = "check_background"

// noticeHints are the hints in notices for agents.
var noticeHints = background.NoticeHints{
	More:   "check_background without task_ids lists them",
	Result: `A result that ends in … is longer: check_background with its task_ids shows it.`,
}

// decode decodes arguments that fit their schema. It fails only for numbers that no Go
// type holds.
func decode[T any](args json.RawMessage) (in T, err error) {
	err = json.Unmarshal(args, &in)
	if number, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = &background.FieldError{Field: number.Field, Problem: "the number is out of range"}
	}
	return in, err
}
