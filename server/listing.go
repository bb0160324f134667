package server

import (
	"fmt"
	"path"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
)

// Listing says how models discover a tool.
type Listing string

// The values of Listing.
const (
	ListDirectly Listing = "list"   // models get its definition, and pay for it in every call
	ListBySearch Listing = "search" // models find it by search: the tool is deferred
)

// Exec is the name of the tool that runs scripts, which call other tools. An example
// plugin has it, and no other tool should use the name.
const Exec = "exec"

// listings say how models discover tools. Keys are the names of tools as agents see them,
// or patterns such as files_*. A name takes precedence over patterns, and a longer
// pattern over a shorter one.
type listings map[string]Listing

// check returns an error for an invalid pattern or value.
func (l listings) check() error {
	for name, listing := range l {
		field := "Listing." + name
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return &background.FieldError{Field: field, Problem: "expected the name of a tool, or a pattern such as files_*"}
		}
		if listing != ListDirectly && listing != ListBySearch {
			return &background.FieldError{Field: field, Problem: fmt.Sprintf("expected list or search, found %q", listing)}
		}
	}
	return nil
}

// defers reports whether models find a tool by search only. A tool that must never be
// deferred is listed unless its exact name is deferred.
func (l listings) defers(name string, never bool) bool {
	key, ok := matching(l, name)
	return ok && l[key] == ListBySearch && (key == name || !never)
}

// matching returns the key that applies to a tool in a table of names and patterns.
func matching[V any](table map[string]V, name string) (key string, ok bool) {
	if _, ok := table[name]; ok {
		return name, true
	}
	for pattern := range table {
		if ok, _ := path.Match(pattern, name); ok && (len(pattern) > len(key) || len(pattern) == len(key) && pattern < key) {
			key = pattern
		}
	}
	return key, key != ""
}

// deferred reports whether models find a tool by search only.
func (s *toolset) deferred(t *callable) bool {
	return t.listing.defers(t.Name, t.Tool.Deferrable == abi.DeferNever || t.Name == Exec)
}

// defersAgent is deferred for the agent's own tools. With scripts, models need only the
// tools to check and to search.
func (s *toolset) defersAgent(name string, scripts bool) bool {
	return name != ToolsSearch && s.now().listing.defers(name, !scripts || name == CheckBackground)
}

// searches reports whether models are offered the search.
func (s *toolset) searches(tools []*callable) bool {
	return slices.ContainsFunc(tools, func(t *callable) bool { return t.Denied() == nil && (t.Name == Exec || s.deferred(t)) })
}

// scripts reports whether one of the tools runs scripts.
func scripts(tools []*callable) bool {
	return slices.ContainsFunc(tools, func(t *callable) bool { return t.Name == Exec && t.Denied() == nil })
}

// AllDefinitions returns [Service.Definitions] and the deferred tools, sorted together.
// Each can be called by its name.
func (s *Service) AllDefinitions(session string) []Definition {
	var ds []Definition
	tools := s.callables()
	for _, t := range tools {
		if t.Denied() == nil {
			ds = append(ds, s.define(t))
		}
	}
	for _, a := range s.offered(tools, s.runs) {
		ds = append(ds, s.defineAgent(a, tools))
	}
	return ds
}
