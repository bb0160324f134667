package webui

import (
	"context"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	maxDescription = 300 // bytes of a description that are shown
	// pluginsAge is how long the list of plugins is shown without reading it again:
	// it changes when the operator changes something, and reading it may read files.
	pluginsAge = 5 * time.Second
)

// pluginsPage shows what is loaded, what was granted, and what is wrong.
type pluginsPage struct {
	site     *site
	readAt   time.Time
	sections []section // as of readAt
}

func (s *site) plugins(*http.Request) (page, error) { return &pluginsPage{site: s}, nil }

func (*pluginsPage) name() (title, menu string) { return "Plugins", "/ui/plugins" }

func (*pluginsPage) changed(wire.Event) bool { return false } // it is read now and then

func (p *pluginsPage) read(ctx context.Context) ([]section, error) {
	if p.sections != nil && time.Since(p.readAt) < pluginsAge {
		return p.sections, nil
	}
	loaded, found, err := p.site.service.Catalog(ctx)
	if err != nil {
		return nil, err
	}

	tools := 0
	for _, l := range loaded {
		tools += len(l.Tools)
	}
	p.readAt, p.sections = time.Now(), []section{
		{"problems", newProblems(found)},
		{"plugins", struct {
			Plugins []wire.Plugin
			Tools   int
		}{loaded, tools}},
	}
	return p.sections, nil
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
