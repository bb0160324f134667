package webui

import (
	"net/http"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/wire"
)

// maxDescription is how many bytes of a description are shown.
const maxDescription = 300

// catalog is what the page of the plugins shows.
type catalog struct {
	Plugins []wire.Plugin
	Tools   int
}

// plugins shows which plugins are loaded, what they were granted, and what is
// wrong.
func (s *site) plugins(r *http.Request) (page, error) {
	loaded, found, err := s.service.Catalog(r.Context())
	if err != nil {
		return page{}, err
	}

	c := catalog{Plugins: loaded}
	for _, p := range loaded {
		c.Tools += len(p.Tools)
	}
	return page{"Plugins", "/ui/plugins", []section{{"problems", newProblems(found)}, {"plugins", c}}}, nil
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
