package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// maxDescription is how many bytes of a description a page shows.
const maxDescription = 300

// catalog is the content of the page of plugins.
type catalog struct {
	Plugins    []pluginView
	Program    []wire.PluginTool // tools of the embedding program
	Tools      int
	Configured bool // a reload also reads the configuration
	Reloaded   *reloadView
}

// A reloadView shows the changes of a reload, or why it was refused.
type reloadView struct {
	Title string
	Lines []string
}

// A pluginView is a plugin with the rules behind its grants.
type pluginView struct {
	wire.Plugin
	Rules []Setting // one row for each entry of a list
	AddTo string    // where Lines belong
	Lines string    // configuration that grants what is missing
}

// Partly reports whether some of the tools can be called.
func (v pluginView) Partly() bool {
	return slices.ContainsFunc(v.Tools, func(t wire.PluginTool) bool { return len(t.Missing) == 0 })
}

// plugins shows the loaded plugins, their grants, and problems.
func (s *site) plugins(r *http.Request) (page, error) {
	return s.catalog(r.Context(), nil)
}

func (s *site) catalog(ctx context.Context, reloaded *reloadView) (page, error) {
	loaded, found, err := s.service.Catalog(ctx)
	if err != nil {
		return page{}, err
	}

	c := catalog{Program: s.service.ProgramTools(), Configured: s.Reload != nil, Reloaded: reloaded}
	settings := s.Settings()
	for _, p := range loaded {
		c.Tools += len(p.Tools)
		v := pluginView{Plugin: p, Rules: rulesOf(p.Name, settings)}
		if len(p.Missing) > 0 && s.Lacking != nil {
			v.AddTo, v.Lines = s.Lacking(p.Name)
		}
		c.Plugins = append(c.Plugins, v)
	}
	return page{title: "Plugins", menu: "/ui/plugins", sections: []section{{"problems", newProblems(found)}, {"plugins", c}}}, nil
}

// rulesOf returns the settings that grant a plugin something. Lists have a row for each
// entry.
func rulesOf(plugin string, settings []Setting) (rules []Setting) {
	for _, s := range settings {
		if !strings.HasPrefix(s.Key, "grants."+plugin+".") {
			continue
		}
		var entries []json.RawMessage
		if json.Unmarshal([]byte(s.Value), &entries) != nil || len(entries) == 0 {
			rules = append(rules, s)
			continue
		}
		for i, entry := range entries {
			rules = append(rules, Setting{fmt.Sprintf("%s.%d", s.Key, i), string(entry), s.Source})
		}
	}
	return rules
}

// reload reads the configuration and the plugins again, and shows what has changed. It
// continues even if the operator leaves the page.
func (s *site) reload(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r, maxForm); err != nil {
		return err
	}

	status, view := http.StatusOK, &reloadView{Title: "Reloaded:"}
	out, err := s.reloadAll(context.WithoutCancel(r.Context()))
	switch {
	case err == nil:
		view.Lines = out.Lines()
		s.Logger.Info("reloaded by an operator")
	case server.ReasonOf(err).Code == wire.CodeInternal: // the operator's own configuration
		status, view.Title, view.Lines = http.StatusUnprocessableEntity, "Reload refused, nothing has changed:", strings.Split(err.Error(), "\n")
	default:
		return err
	}
	view.bound()

	p, err := s.catalog(r.Context(), view)
	if err != nil {
		return err
	}
	return s.answer(w, r, status, p)
}

// reloadAll reloads everything the program can reload.
func (s *site) reloadAll(ctx context.Context) (wire.Reload, error) {
	if s.Reload == nil {
		return s.service.ReloadPlugins(ctx)
	}
	return s.Reload(ctx)
}

// bound limits the number and the length of the lines shown, as for problems.
func (v *reloadView) bound() {
	if more := len(v.Lines) - maxProblems; more > 0 {
		v.Lines = append(v.Lines[:maxProblems:maxProblems], fmt.Sprintf("%d more lines are not shown", more))
	}
	for i, line := range v.Lines {
		v.Lines[i] = cut(line, maxProblem)
	}
}

// settings shows the configuration in force.
func (s *site) settings(*http.Request) (page, error) {
	return page{title: "Settings", menu: "/ui/settings", sections: []section{{"settings", s.Settings()}}}, nil
}

// brief shortens a description.
func brief(s string) string { return cut(s, maxDescription) }

// claims returns what a tool declares about itself.
func claims(t wire.PluginTool) []string {
	return named([]naming{
		{t.Hints.Readonly, "readonly"}, {t.Hints.Idempotent, "idempotent"}, {t.Hints.SupportsBackground, "background"},
		{t.Hints.LongRunning, "long running"}, {t.Hints.Concurrency == abi.Serial, "serial"}, {!t.Hints.IsPureInit(), "fresh instance"},
		{t.Approval == abi.ApprovalRequired, "asks for approval"},
	})
}

// effectsOf returns what a call can really do.
func effectsOf(a wire.Annotations) []string {
	return named([]naming{
		{a.ReadOnly, "changes nothing"}, {!a.ReadOnly && !a.Destructive, "writes"}, {a.Destructive, "may delete or overwrite"},
		{a.Idempotent, "may be repeated"}, {a.OpenWorld, "reaches the network"},
	})
}

// A naming is the name of a property, and whether the property holds.
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
