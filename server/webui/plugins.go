package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// maxDescription is how many bytes of a description are shown.
const maxDescription = 300

// catalog is what the page of the plugins shows.
type catalog struct {
	Plugins    []pluginView
	Program    []wire.PluginTool // of the program that has the server
	Tools      int
	Configured bool // a reload also reads the configuration
	Reloaded   *reloadView
}

// A reloadView is what a reload has changed, or why it was refused.
type reloadView struct {
	Title string
	Lines []string
}

// A pluginView is a plugin with the rules behind its grants.
type pluginView struct {
	wire.Plugin
	Rules []Setting // a row for each entry of a list
	AddTo string    // says where Lines belong
	Lines string    // of a configuration, that grant what is missing
}

// plugins shows which plugins are loaded, what they were granted, and what is
// wrong.
func (s *site) plugins(r *http.Request) (page, error) {
	return s.catalog(r.Context(), nil)
}

func (s *site) catalog(ctx context.Context, reloaded *reloadView) (page, error) {
	loaded, found, err := s.service.Catalog(ctx)
	if err != nil {
		return page{}, err
	}

	c := catalog{Program: s.service.ProgramTools(), Configured: s.Reload != nil, Reloaded: reloaded}
	var settings []Setting
	if s.Settings != nil {
		settings = s.Settings()
	}
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

// rulesOf returns the settings that grant a plugin something, those that are lists by
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

// reload reads the configuration and the plugins again, and shows what has changed. An
// operator who leaves does not end it half way.
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
	case server.ReasonOf(err).Code == wire.CodeInternal: // it is the operator's own configuration
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

// reloadAll reloads what the program can reload.
func (s *site) reloadAll(ctx context.Context) (wire.Reload, error) {
	if s.Reload == nil {
		return s.service.ReloadPlugins(ctx)
	}
	return s.Reload(ctx)
}

// bound cuts what is shown to as many lines, and as long ones, as problems have.
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
	var all []Setting
	if s.Settings != nil {
		all = s.Settings()
	}
	return page{title: "Settings", menu: "/ui/settings", sections: []section{{"settings", all}}}, nil
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

// effectsOf are what a call may really do.
func effectsOf(a wire.Annotations) []string {
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
