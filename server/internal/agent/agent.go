// Package agent provides the agent's own tools, in addition to those of the catalog. They
// spawn, check and stop background runs, send them messages, and search for tools. The
// package reads the arguments of a call, acts on the runs of one session, and words the
// answer for a model.
package agent

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/schema"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/internal/reason"
	"github.com/toolhost/toolhost/server/internal/shape"
	"github.com/toolhost/toolhost/server/wire"
)

// The names of the agent's own tools. None of them can be spawned.
const (
	SpawnBackground   = "spawn_background"
	CheckBackground   = "check_background"
	StopBackground    = "stop_background"
	MessageBackground = "message_background"
	ToolsSearch       = "tools_search"
)

// Texts that say how a caller learns of the end of a run: one that named its session, and one
// that did not.
const (
	EndsNotified = "its end comes with a later tool result"
	EndsChecked  = "wait for its end with " + CheckBackground
)

// Names lists the names of the agent's own tools.
var Names = []string{SpawnBackground, CheckBackground, StopBackground, MessageBackground, ToolsSearch}

// NoticeHints are the hints in notices for agents.
var NoticeHints = background.NoticeHints{
	More:   CheckBackground + " without task_ids lists them",
	Result: "A result that ends in … is longer: " + CheckBackground + " with its task_ids shows it.",
}

// A Call is a call of one of the agent's own tools.
type Call struct {
	Args    catalog.Args
	DryRun  bool
	Unnamed bool          // the caller did not name the session
	MaxWait time.Duration // longest wait for the end of a run, if shorter than [background.MaxWait]; 0 means no limit of its own
	// File returns the name by which the agent reads a file of a run; empty if it cannot.
	File func(r engine.Run, name string) string
}

// A Session gives the agent's tools access to the runs and schedules of one session. Its
// errors describe mistakes of the agent, see package reason.
type Session interface {
	spawner
	checker
	stopper
	messenger
}

// Records gives access to the records of the runs and schedules of all sessions.
type Records interface {
	List(ctx context.Context, q engine.Query) ([]engine.Run, error)
	Schedules(ctx context.Context, session string) ([]engine.Schedule, error)
}

//go:embed schemas
var schemas embed.FS

// A Tool is one of the agent's own tools.
type Tool struct {
	definition wire.Definition
	schema     json.RawMessage // accepted arguments; models see less, see shownSchema
	input      *schema.Schema
	found      *abi.Tool // the tool as a search finds it
	run        runFunc
}

// A runFunc runs a tool, and returns its answer, which becomes JSON.
type runFunc func(ctx context.Context, s Session, c Call) (any, error)

// Tools are the agent's own tools. They are safe for concurrent use.
type Tools struct {
	catalog *catalog.Catalog
	records Records
	all     []*Tool // all tools, whether models see them or not
}

// New returns the agent's own tools, for use with those of a catalog.
func New(c *catalog.Catalog, records Records) (*Tools, error) {
	a := &Tools{catalog: c, records: records}
	run := map[string]runFunc{SpawnBackground: spawn, CheckBackground: check, StopBackground: stop, MessageBackground: message, ToolsSearch: a.search}
	for _, d := range builtin {
		raw, err := schemas.ReadFile("schemas/" + d.Name + ".json")
		if err != nil {
			return nil, err
		}
		input, err := schema.Compile(raw)
		if err != nil {
			return nil, err
		}

		d.Approval, d.Deferrable = abi.ApprovalAuto, abi.DeferNever
		found := &abi.Tool{Title: d.Title, Description: d.Description, InputSchema: shownSchema(raw, nil)}
		a.all = append(a.all, &Tool{definition: d, schema: raw, input: input, found: found, run: run[d.Name]})
	}
	return a, nil
}

// Lookup returns one of the tools by its name; nil if models do not see it.
func (a *Tools) Lookup(name string) *Tool {
	if !slices.Contains(Names, name) {
		return nil
	}
	offered := a.offered(a.catalog.Tools())
	if i := slices.IndexFunc(offered, func(t *Tool) bool { return t.definition.Name == name }); i >= 0 {
		return offered[i]
	}
	return nil
}

// Call runs the tool. The session is nil if the call has none; only the search works then.
func (t *Tool) Call(ctx context.Context, s Session, c Call) (abi.Result, error) {
	args, _, problems := t.input.Fit(listed(t.schema, c.Args))
	if len(problems) > 0 {
		return reason.Explain(reason.BadArgs(t.definition.Name, problems))
	}
	c.Args = args
	if s == nil && t.definition.Name != ToolsSearch {
		return reason.ToolError("%s needs a session, and this call has none", t.definition.Name), nil
	}

	answer, err := t.run(ctx, s, c)
	if errors.Is(err, plugins.ErrNoTool) { // the tool to run: the agent can name another
		r, _ := reason.Explain(err)
		return r, nil
	}
	if err != nil {
		return reason.Explain(err)
	}
	value, err := shape.JSON(answer)
	if err != nil {
		return reason.Explain(fmt.Errorf("%s: %w", t.definition.Name, err))
	}

	return abi.Result{Kind: abi.Success, Value: value}, nil
}

// decode decodes arguments that fit their schema. It fails only for numbers that no Go
// type holds.
func decode[T any](args catalog.Args) (in T, err error) {
	err = json.Unmarshal(args.Raw(), &in)
	if number, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = &background.FieldError{Field: number.Field, Problem: "the number is out of range"}
	}
	return in, err
}

// seconds converts a number of seconds from JSON, where 60.0 is an integer and 1e300 is
// valid. Negative numbers become 0.
func seconds(n float64) time.Duration {
	return time.Duration(max(0, min(n, 1e9))) * time.Second
}
