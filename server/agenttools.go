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
	"github.com/toolhost/toolhost/server/internal/catalog"
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

// agentTools are the agent's own tools.
type agentTools struct {
	catalog *catalog.Catalog
	runs    *background.Manager
	all     []*agentTool // whether models see them or not
}

// newAgentTools returns the agent's own tools.
func newAgentTools(c *catalog.Catalog, runs *background.Manager) (*agentTools, error) {
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

	return &agentTools{c, runs, tools}, nil
}

// offered returns those of the agent's tools that a model can call. A model pays for each
// definition in every call, so tools without a use are left out. If some tool runs in the
// background, all but message_background are offered, and that one too if such a tool reads
// messages. While there are runs, check and stop are always offered: a reload may have
// removed the last background tool. The search is offered if there is something to find.
func (a *agentTools) offered(tools []*catalog.Tool) []*agentTool {
	hidden := map[string]bool{
		MessageBackground: !slices.ContainsFunc(tools, a.reads),
		ToolsSearch:       !catalog.Searched(tools),
	}
	if !slices.ContainsFunc(tools, func(t *catalog.Tool) bool { return t.Denied() == nil && t.Backgrounds() }) {
		hidden[SpawnBackground] = true
		if !a.hasRuns() {
			hidden[CheckBackground], hidden[StopBackground], hidden[MessageBackground] = true, true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(a.all), func(t *agentTool) bool { return hidden[t.definition.Name] })
}

// reads reports whether a tool may have runs that read messages. A tool that has lost its
// grants may still have active ones.
func (a *agentTools) reads(t *catalog.Tool) bool {
	switch {
	case !t.Tool.Hints.Messages || !t.Backgrounds():
		return false
	case t.Denied() == nil:
		return true
	}
	active, err := a.runs.List(context.Background(), engine.Query{Active: true, Limit: 1, Filter: engine.Filter{Tool: t.Name}})
	return err != nil || len(active) > 0
}

// hasRuns reports whether there are, or may be, records of runs or schedules.
func (a *agentTools) hasRuns() bool {
	runs, err := a.runs.List(context.Background(), engine.Query{Limit: 1})
	if err != nil || len(runs) > 0 {
		return true
	}
	schedules, err := a.runs.Schedules(context.Background(), "")
	return err != nil || len(schedules) > 0
}

// names returns the names of the agent's tools that models see.
func (a *agentTools) names() (names []string) {
	for _, t := range a.offered(a.catalog.Tools()) {
		names = append(names, t.definition.Name)
	}
	return names
}

// lookup returns one of the agent's tools by its name; nil if models do not see it.
func (a *agentTools) lookup(name string) *agentTool {
	if !IsAgentTool(name) {
		return nil
	}
	offered := a.offered(a.catalog.Tools())
	if i := slices.IndexFunc(offered, func(t *agentTool) bool { return t.definition.Name == name }); i >= 0 {
		return offered[i]
	}
	return nil
}

// definitions returns the agent's tools as models see them next to those tools.
func (a *agentTools) definitions(tools []*catalog.Tool, schedules bool) (all []Definition) {
	for _, t := range a.offered(tools) {
		all = append(all, a.define(t, tools, schedules))
	}
	return all
}

// define returns the definition of an agent tool, as models see it next to those tools.
func (a *agentTools) define(t *agentTool, tools []*catalog.Tool, schedules bool) Definition {
	scripted := catalog.Scripted(tools)
	d := t.definition
	d.Deferred = a.deferred(d.Name, scripted)

	names, readers := backgroundNames(tools)
	var hidden []string
	if !schedules {
		hidden = []string{"schedule", "schedule_id"}
	}
	switch {
	case d.Name == MessageBackground && len(readers) <= maxEnum:
		d.Description += " They are: " + strings.Join(readers, ", ") + "."
	case d.Name == ToolsSearch && scripted:
		d.Description = textSearchScripted
	case d.Name == CheckBackground && a.deferred(SpawnBackground, scripted):
		d.Description = textCheckShort
		hidden = append(hidden, "until", "cursor", "max_chars")
	}
	d.InputSchema = shownSchema(t.schema, names, hidden...)
	return d
}

// deferred reports whether models find one of the agent's tools by search only. With
// scripts, models need only the tools to check and to search.
func (a *agentTools) deferred(name string, scripted bool) bool {
	return name != ToolsSearch && a.catalog.Listings().Defers(name, !scripted || name == CheckBackground)
}

// entries returns those of the agent's tools that models find by search only.
func (a *agentTools) entries() (all []catalog.Entry) {
	tools := a.catalog.Tools()
	scripted := catalog.Scripted(tools)
	for _, t := range a.offered(tools) {
		if name := t.definition.Name; a.deferred(name, scripted) {
			all = append(all, catalog.Entry{Tool: t.found, Name: name, Description: t.definition.Description})
		}
	}
	return all
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
func backgroundNames(tools []*catalog.Tool) (names, readers []string) {
	some := true
	for _, t := range tools { // sorted by name
		if t.Denied() == nil && t.Tool.Hints.SupportsBackground {
			names = append(names, t.Name)
			some = some && !t.Deferred()
		}
		if t.Tool.Hints.Messages && t.Backgrounds() && !t.Deferred() {
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
		if t := s.agent.lookup(c.Tool); t != nil {
			c.note.Known = true
			return t.call(ctx, s, c.Request)
		}
		return next(ctx, c)
	}
}

// toolOf returns the tool of a call. Its error may suggest one of the agent's own tools.
func (s *Service) toolOf(ctx context.Context, c call) (*catalog.Tool, error) {
	tool, err := s.catalog.Find(ctx, c.Tool)
	if err != nil {
		tool, err = s.catalog.Lookup(c.Tool, s.agent.names()...)
	}
	return tool, err
}

// offerRuns shows models the tools for runs, which are hidden while there are no runs.
func (s *Service) offerRuns() {
	if s.agent.lookup(SpawnBackground) == nil {
		s.changed.send()
	}
}

// searchTools answers tools_search.
func searchTools(_ context.Context, s *Service, req Request) (any, error) {
	in, err := decode[struct {
		Query string   `json:"query"`
		Limit *float64 `json:"limit"`
	}](req.Args)
	if err != nil {
		return nil, err
	}

	limit := catalog.DefaultFound
	if in.Limit != nil {
		limit = int(*in.Limit)
	}
	return s.catalog.Search(in.Query, limit, s.agent.entries()), nil
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
