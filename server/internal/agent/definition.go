package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/internal/catalog"
	"github.com/toolhost/toolhost/server/wire"
)

// builtin holds the definitions of the tools, without the parts that are the same for all of
// them.
var builtin = []wire.Definition{{
	Name: SpawnBackground, Title: "Spawn Background",
	Description: "Run a tool in the background. Returns a task_id at once; continue with other work: " + EndsNotified + ". With schedule it runs later.",
}, {
	Name: CheckBackground, Title: "Check Background",
	Description: "Status, progress, new output and result of background runs, or the list of them and of schedules. Waits for the end: prefer one long wait to many short ones. A call answered with type background is such a run: do not repeat it.",
	Annotations: wire.Annotations{ReadOnly: true, Idempotent: true},
}, {
	Name: StopBackground, Title: "Stop Background",
	Description: "Stop a background run, or a schedule. A result that came first is returned and kept.",
	Annotations: wire.Annotations{Destructive: true, Idempotent: true},
}, {
	Name: MessageBackground, Title: "Message Background",
	Description: "Send a message to an active background run. The descriptions of tools that read messages say what to send.",
}, {
	Name: ToolsSearch, Title: "Search Tools",
	Description: "Find tools that are not listed here, with their TypeScript declarations. Call them by name.",
	Annotations: wire.Annotations{ReadOnly: true, Idempotent: true},
}}

// offered returns the agent's own tools that a model can call. A model pays for each
// definition in every call, so tools without a use are left out. If some tool runs in the
// background, all but message_background are offered, and that one too if such a tool reads
// messages. While there are runs, check and stop are always offered: a reload may have
// removed the last background tool. The search is offered if there is something to find.
func (a *Tools) offered(tools []*catalog.Tool) []*Tool {
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
	return slices.DeleteFunc(slices.Clone(a.all), func(t *Tool) bool { return hidden[t.definition.Name] })
}

// reads reports whether a tool may have runs that read messages. A tool that has lost its
// grants may still have active ones.
func (a *Tools) reads(t *catalog.Tool) bool {
	switch {
	case !t.Tool.Hints.Messages || !t.Backgrounds():
		return false
	case t.Denied() == nil:
		return true
	}
	active, err := a.records.List(context.Background(), engine.Query{Active: true, Limit: 1, Filter: engine.Filter{Tool: t.Name}})
	return err != nil || len(active) > 0
}

// hasRuns reports whether there are, or may be, records of runs or schedules.
func (a *Tools) hasRuns() bool {
	runs, err := a.records.List(context.Background(), engine.Query{Limit: 1})
	if err != nil || len(runs) > 0 {
		return true
	}
	schedules, err := a.records.Schedules(context.Background(), "")
	return err != nil || len(schedules) > 0
}

// Names returns the names of the agent's tools that models see.
func (a *Tools) Names() (names []string) {
	for _, t := range a.offered(a.catalog.Tools()) {
		names = append(names, t.definition.Name)
	}
	return names
}

// Definitions returns the agent's tools as models see them if they also have these tools of
// the catalog. The parameter schedules says whether the host has schedules.
func (a *Tools) Definitions(tools []*catalog.Tool, schedules bool) (all []wire.Definition) {
	for _, t := range a.offered(tools) {
		all = append(all, a.define(t, tools, schedules))
	}
	return all
}

// define returns the definition of one of the agent's tools, as models see it if they also
// have these tools of the catalog.
func (a *Tools) define(t *Tool, tools []*catalog.Tool, schedules bool) wire.Definition {
	scripted := catalog.Scripted(tools)
	d := t.definition
	d.Deferred = a.deferred(d.Name, scripted)

	names, readers := backgroundNames(tools)
	var hidden []string
	if !schedules {
		hidden = []string{"schedule", "schedule_id"}
	}
	switch {
	case d.Name == MessageBackground && len(readers) <= maxNames:
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

// deferred reports whether models find one of the agent's tools by search only. If they have a
// tool that runs scripts, only the agent's tools that check and search are listed.
func (a *Tools) deferred(name string, scripted bool) bool {
	return name != ToolsSearch && a.catalog.Listings().Defers(name, !scripted || name == CheckBackground)
}

// entries returns the agent's own tools that models find by search only.
func (a *Tools) entries() (all []catalog.Entry) {
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
	textSearchScripted = "Find the tools that scripts of " + catalog.Exec + " can call, as tools.NAME(args), with their TypeScript declarations."
	textCheckShort     = "Wait for calls that continue in the background (answered with type background: do not repeat those). Answers status, output and result."
)

// backgroundNames returns the names of the tools that can be spawned, and of those that read
// messages. If a tool that can be spawned is deferred, it returns no names: a schema that
// lists names would exclude that tool.
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
