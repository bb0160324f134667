package server

import (
	"fmt"
	"path"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
)

// Listing says how a model learns of a tool.
type Listing string

// The ways.
const (
	ListDirectly Listing = "list"   // by its definition, which the model pays for in every call
	ListBySearch Listing = "search" // by a search: the tool is deferred
)

// Exec is the name of the tool that runs scripts, which call other tools. The plugin that
// has it is an example, and no other tool is expected under the name.
const Exec = "exec"

// listings are how models learn of tools, by the names of tools as agents see them or by
// patterns such as files_*. A name wins over patterns, and a longer pattern over a shorter
// one.
type listings map[string]Listing

// check returns an error if a pattern or a way is wrong.
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

// defers reports whether models find a tool by search only. A tool that is said to be
// never deferred is listed unless its very name is deferred.
func (l listings) defers(name string, never bool) bool {
	key, ok := matching(l, name)
	return ok && l[key] == ListBySearch && (key == name || !never)
}

// matching returns the key of a table by names and patterns that decides on a tool.
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

// defersAgent is deferred for the agent's own tools. With scripts a model needs only
// those to check and to search.
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

// AllDefinitions returns [Service.Definitions] and the deferred tools, in one order. Each
// can be called by its name.
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
