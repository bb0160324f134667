package catalog

import (
	"fmt"
	"path"
	"slices"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
)

// A Listing says how models discover a tool.
type Listing string

// The values of Listing.
const (
	ListDirectly Listing = "list"   // models get the tool's definition, and pay for it in every call
	ListBySearch Listing = "search" // models find it by search: the tool is deferred
)

// Exec is the name of the tool that runs scripts, which call other tools.
const Exec = "exec"

// Listings say how models discover tools. Keys are the names of tools as agents see them,
// or patterns such as files_*. A name takes precedence over patterns, and a longer
// pattern over a shorter one.
type Listings map[string]Listing

// Check returns an error for an invalid pattern or value.
func (l Listings) Check() error {
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

// Defers reports whether models find a tool by search only. A tool that must never be
// deferred is listed, unless the listings defer it by its exact name.
func (l Listings) Defers(name string, never bool) bool {
	key, ok := MatchingKey(l, name)
	return ok && l[key] == ListBySearch && (key == name || !never)
}

// MatchingKey returns the key that applies to the tool with this name, in a table whose keys
// are names and patterns.
func MatchingKey[V any](table map[string]V, name string) (key string, ok bool) {
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

// Deferred reports whether models find the tool by search only.
func (t *Tool) Deferred() bool {
	return t.Settings.Listings().Defers(t.Name, t.Tool.Deferrable == abi.DeferNever || t.Name == Exec)
}

// Searched reports whether models find any of the tools by search.
func Searched(tools []*Tool) bool {
	return slices.ContainsFunc(tools, func(t *Tool) bool { return t.Denied() == nil && (t.Name == Exec || t.Deferred()) })
}

// Scripted reports whether one of the tools runs scripts.
func Scripted(tools []*Tool) bool {
	return slices.ContainsFunc(tools, func(t *Tool) bool { return t.Name == Exec && t.Denied() == nil })
}
