// Package grant defines the rights that an operator grants to a plugin: the
// capabilities, the needs of a plugin, and the grants. It does not depend on calls.
package grant

import (
	"errors"
	"fmt"

	"github.com/toolhost/toolhost/abi"
)

// ErrDenied means that something was not granted.
var ErrDenied = errors.New("denied")

// Grant is the operator's grant to one plugin. The zero Grant grants nothing.
type Grant struct {
	Clock  bool // the real time, and sleeping
	Random bool // real randomness
	Ask    bool // questions to the user, if Call.Ask is set
	// Session allows reading, or reading and writing, the values of the session.
	Session abi.StoreMode
	KV      KV                // a key-value store
	HTTP    []HTTPRule        // requests over HTTP
	Files   []Mount           // folders
	Env     map[string]string // environment variables as the plugin sees them
	Tools   []string          // other tools it may call, by the names agents know them by
	// Config holds the plugin's settings, which it reads from abi.FieldContext. Do not
	// put secrets there.
	Config map[string]string
}

// Capability is a right that the operator can grant to a plugin.
type Capability struct {
	Name string // the key of a grant in the configuration
	Doc  string // short description for operators

	// Missing lists the needs of a manifest that a grant lacks, in the operator's
	// notation.
	Missing func(n abi.Needs, g Grant) []string
	// Lacking extends the grant in add by the needs that Missing lists, with [Choose] for
	// values that only the operator knows. Nil means that nothing can be missing.
	Lacking func(n abi.Needs, g Grant, add *Grant)
	// Granted lists the parts of the capability that are granted, in the operator's
	// notation and without values.
	Granted func(g Grant) []string
	// Check returns the problems with a grant. If Check is nil, there are none.
	Check func(g Grant) []GrantProblem
	// Writes reports whether a plugin with the grant can change anything outside
	// its sandbox. Nil means that it cannot.
	Writes func(g Grant) bool
}

// GrantProblem is one problem with a grant.
type GrantProblem struct {
	Key     string // key within the grant, such as files.0.dir
	Problem string
}

// Choose is a placeholder in the result of [Grant.Lacking] for a folder or a value
// that only the operator can choose.
const Choose = "CHOOSE"

// flag returns a capability without parameters.
func flag(name, doc string, needed func(abi.Needs) bool, field func(*Grant) *bool) Capability {
	names := func(listed bool) []string {
		if listed {
			return []string{name}
		}
		return nil
	}

	return Capability{
		Name: name, Doc: doc,
		Missing: func(n abi.Needs, g Grant) []string { return names(needed(n) && !*field(&g)) },
		Lacking: func(n abi.Needs, g Grant, add *Grant) { *field(add) = needed(n) && !*field(&g) },
		Granted: func(g Grant) []string { return names(*field(&g)) },
	}
}

// store returns a capability to read, or to read and write, a store.
func store(name, doc string, check func(Grant) []GrantProblem, needed func(abi.Needs) abi.StoreMode, field func(*Grant) *abi.StoreMode) Capability {
	text := func(mode abi.StoreMode) string { return fmt.Sprintf("%s (%s)", name, mode) }
	lacking := func(n abi.Needs, g Grant) abi.StoreMode {
		if granted := *field(&g); granted == abi.StoreWrite || granted == needed(n) {
			return ""
		}
		return needed(n)
	}

	return Capability{
		Name: name, Doc: doc,
		Missing: func(n abi.Needs, g Grant) []string {
			if mode := lacking(n, g); mode != "" {
				return []string{text(mode)}
			}
			return nil
		},
		Lacking: func(n abi.Needs, g Grant, add *Grant) {
			if mode := lacking(n, g); mode != "" {
				*field(add) = mode
			}
		},
		Granted: func(g Grant) []string {
			if mode := *field(&g); mode != "" {
				return []string{text(mode)}
			}
			return nil
		},
		Check:  check,
		Writes: func(g Grant) bool { return *field(&g) == abi.StoreWrite },
	}
}

// texts returns the texts of parts of needs or of a grant, in the operator's notation.
func texts[T any](parts []T, text func(T) string) (all []string) {
	for _, p := range parts {
		all = append(all, text(p))
	}
	return all
}
