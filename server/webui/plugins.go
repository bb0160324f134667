package webui

import (
	"context"
	"net/http"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
)

// maxDescription is how much of a description is shown, in bytes.
const maxDescription = 300

// pluginsPage shows what is loaded, what was granted, and what is wrong.
type pluginsPage struct {
	site   *site
	looked time.Time
	parts  []part // as they were then
}

// seldom is how long a look at the plugins is good for: they change when the
// operator changes something, and to look may be to read their files.
const seldom = 5 * time.Second

func (s *site) plugins(*http.Request) (page, error) { return &pluginsPage{site: s}, nil }

func (*pluginsPage) name() (title, menu string) { return "Plugins", "/ui/plugins" }

func (*pluginsPage) heard(background.Event) bool { return false } // it is looked at now and then

func (p *pluginsPage) look(ctx context.Context, now time.Time) (parts []part, err error) {
	if p.parts == nil || now.Sub(p.looked) >= seldom {
		p.looked = now
		p.parts, err = p.read(ctx)
	}
	return p.parts, err
}

func (p *pluginsPage) read(ctx context.Context) ([]part, error) {
	loaded := p.site.service.Plugins()
	unread, err := plugins.ReadDigests(ctx, loaded) // known after the first time
	if err != nil {
		return nil, err
	}
	rows, err := newRows("plugins-row", loaded, func(l *plugins.Plugin) (string, any) {
		return "plugin-" + l.Manifest.Name, newPluginView(l)
	})
	if err != nil {
		return nil, err
	}
	var c collect
	c.add(whole("problems", newProblems(append(p.site.service.Unusable(), unread...))))
	c.add(list("plugins", struct{ N, Tools int }{len(rows), len(p.site.service.Tools())}, rows))
	return c.parts, c.err
}

// brief cuts a description.
func brief(s string) string { return cut(s, maxDescription) }

// A pluginView is a plugin as the page shows it. Of variables and settings only
// the names are shown.
type pluginView struct {
	*plugins.Plugin
	Digest string // "": the file cannot be read
	Needs  []string
	Grants []string
	Shown  []toolView
}

// A toolView is a tool as the page shows it.
type toolView struct {
	*plugins.Tool
	Hints []string
	Notes []string // what a call may do: by its hints, and what was granted
}

func newPluginView(p *plugins.Plugin) pluginView {
	digest, _ := p.Digest() // else it is among the problems
	v := pluginView{Plugin: p, Digest: digest, Needs: plugins.Grant{}.Missing(p.Manifest.Needs), Grants: p.Grant.Names()}
	if len(p.Grant.Config) > 0 {
		v.Grants = append(v.Grants, "config")
	}
	for _, t := range p.Tools {
		v.Shown = append(v.Shown, toolView{t, hints(t.Tool), notes(server.Annotate(t))})
	}
	return v
}

// hints are what a tool says of itself.
func hints(t *abi.Tool) []string {
	return named([]naming{
		{t.Hints.Readonly, "readonly"}, {t.Hints.Idempotent, "idempotent"}, {t.Hints.SupportsBackground, "background"},
		{t.Hints.LongRunning, "long running"}, {t.Hints.Concurrency == abi.Serial, "serial"}, {!t.Hints.IsPureInit(), "fresh instance"},
		{t.Approval == abi.ApprovalRequired, "asks for approval"},
	})
}

// notes are what a call may really do.
func notes(a server.Annotations) []string {
	return named([]naming{
		{a.ReadOnly, "changes nothing"}, {!a.ReadOnly && !a.Destructive, "writes"}, {a.Destructive, "may delete or overwrite"},
		{a.Idempotent, "may be repeated"}, {a.OpenWorld, "reaches the world"},
	})
}

// A naming is a name for what is so.
type naming struct {
	is   bool
	name string
}

func named(all []naming) []string {
	var names []string
	for _, n := range all {
		if n.is {
			names = append(names, n.name)
		}
	}
	return names
}
