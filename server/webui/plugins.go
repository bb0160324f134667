package webui

import (
	"context"
	"fmt"
	"net/http"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// maxDescription is how many bytes of a description are shown.
const maxDescription = 300

// catalog is what the page of the plugins shows.
type catalog struct {
	Plugins []wire.Plugin
	Program []wire.PluginTool // of the program that has the server
	Tools   int
	Said    string // of a reload
}

// plugins shows which plugins are loaded, what they were granted, and what is
// wrong.
func (s *site) plugins(r *http.Request) (page, error) {
	return s.catalog(r.Context(), "")
}

func (s *site) catalog(ctx context.Context, said string) (page, error) {
	loaded, found, err := s.service.Catalog(ctx)
	if err != nil {
		return page{}, err
	}

	c := catalog{Plugins: loaded, Program: s.service.ProgramTools(), Said: said}
	for _, p := range loaded {
		c.Tools += len(p.Tools)
	}
	return page{"Plugins", "/ui/plugins", []section{{"problems", newProblems(found)}, {"plugins", c}}}, nil
}

// reload reads the folders of plugins again, and shows what has changed.
func (s *site) reload(w http.ResponseWriter, r *http.Request) error {
	if err := readForm(w, r, maxForm); err != nil {
		return err
	}
	changes, err := s.service.Reload(r.Context())
	if err != nil {
		return err
	}

	said := "Reloaded: nothing has changed."
	if !changes.Empty() {
		said = fmt.Sprintf("Reloaded: %d added, %d changed, %d removed.", len(changes.Added), len(changes.Changed), len(changes.Removed))
	}
	s.Logger.Info("plugins reloaded by an operator")
	p, err := s.catalog(r.Context(), said)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, p)
}

// settings shows the configuration in force.
func (s *site) settings(*http.Request) (page, error) {
	var all []Setting
	if s.Settings != nil {
		all = s.Settings()
	}
	return page{"Settings", "/ui/settings", []section{{"settings", all}}}, nil
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
