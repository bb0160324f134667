package webui

import (
	"context"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// maxDescription is how much of a description is shown, in bytes.
const maxDescription = 300

// pluginsPage shows what is loaded, what was granted, and what is wrong.
type pluginsPage struct {
	site   *site
	readAt time.Time
	parts  []part // as of readAt
}

// pluginsAge is how long the list of plugins is shown without reading it again:
// it changes when the operator changes something, and reading it may read files.
const pluginsAge = 5 * time.Second

func (s *site) plugins(*http.Request) (page, error) { return &pluginsPage{site: s}, nil }

func (*pluginsPage) name() (title, menu string) { return "Plugins", "/ui/plugins" }

func (*pluginsPage) changed(wire.Event) bool { return false } // it is read now and then

func (p *pluginsPage) read(ctx context.Context, now time.Time) ([]part, error) {
	if p.parts != nil && now.Sub(p.readAt) < pluginsAge {
		return p.parts, nil
	}
	loaded, found, err := p.site.service.Catalog(ctx)
	if err != nil {
		return nil, err
	}

	tools := 0
	rows, err := newRows("plugins-row", loaded, func(l wire.Plugin) (string, any) {
		tools += len(l.Tools)
		return "plugin-" + l.Name, l
	})
	if err != nil {
		return nil, err
	}

	var c collect
	c.add(whole("problems", newProblems(found)))
	c.add(list("plugins", struct{ N, Tools int }{len(rows), tools}, rows))
	p.readAt, p.parts = now, c.parts
	return c.parts, c.err
}

// brief cuts a description.
func brief(s string) string { return cut(s, maxDescription) }

// claims are what a tool says of itself.
func claims(t wire.PluginTool) []string {
	return named([]naming{
		{t.Hints.Readonly, "readonly"}, {t.Hints.Idempotent, "idempotent"}, {t.Hints.SupportsBackground, "background"},
		{t.Hints.LongRunning, "long running"}, {t.Hints.Concurrency == abi.Serial, "serial"}, {!t.Hints.IsPureInit(), "fresh instance"},
		{t.Approval == abi.ApprovalRequired, "asks for approval"},
	})
}

// effects are what a call may really do.
func effects(t wire.PluginTool) []string {
	a := t.Annotations
	return named([]naming{
		{a.ReadOnly, "changes nothing"}, {!a.ReadOnly && !a.Destructive, "writes"}, {a.Destructive, "may delete or overwrite"},
		{a.Idempotent, "may be repeated"}, {a.OpenWorld, "reaches the network"},
	})
}

// A naming is a name for something that may hold.
type naming struct {
	holds bool
	name  string
}

func named(all []naming) []string {
	var names []string
	for _, n := range all {
		if n.holds {
			names = append(names, n.name)
		}
	}
	return names
}
