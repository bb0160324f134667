package host

import (
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// Grant is what the operator lets one plugin use. The zero Grant is nothing.
type Grant struct {
	Clock  bool              // the real time, and sleeping
	Random bool              // real randomness
	Ask    bool              // questions to the user, if Call.Ask is there
	Files  []Mount           // folders
	Env    map[string]string // variables, with their values as the plugin sees them
	// Config are settings. A plugin reads them from abi.FieldContext; they are no
	// place for secrets.
	Config map[string]string
}

// Capability is something that a plugin can do once the operator has granted it.
// Everything that knows which capabilities there are iterates over Capabilities.
type Capability struct {
	Name string // the key of a grant in the configuration
	Doc  string // what it grants, in a phrase

	// Missing lists what a manifest needs of it and a grant lacks, as an operator
	// would write it.
	Missing func(n abi.Needs, g Grant) []string
	// Granted lists what is granted of it, as an operator would write it. Values
	// are left out.
	Granted func(g Grant) []string
	// Check reports what is wrong with a grant. Nil if nothing can be.
	Check func(g Grant) []GrantProblem
	// Writes reports whether a plugin with the grant can change anything outside
	// its sandbox. Nil if it cannot.
	Writes func(g Grant) bool

	// ops are the functions that a guest calls by name.
	ops map[string]operation
}

// GrantProblem says what is wrong with a grant.
type GrantProblem struct {
	Key     string // within the grant, such as files.0.dir
	Problem string
}

// Capabilities are all that there are, in the order in which they are shown.
var Capabilities = []Capability{clockCapability, randomCapability, askCapability, filesCapability, envCapability, checkpointCapability}

// Names lists what is granted, as an operator would write it.
func (g Grant) Names() []string {
	names := []string{}
	for _, c := range Capabilities {
		names = append(names, c.Granted(g)...)
	}
	return names
}

// Missing lists what a plugin needs and was not granted, as an operator would
// write it.
func (g Grant) Missing(needs abi.Needs) []string {
	var missing []string
	for _, c := range Capabilities {
		missing = append(missing, c.Missing(needs, g)...)
	}
	return missing
}

// Check reports what is wrong with the grant.
func (g Grant) Check() (problems []GrantProblem) {
	for _, c := range Capabilities {
		if c.Check != nil {
			problems = append(problems, c.Check(g)...)
		}
	}
	return problems
}

// Writes reports whether the plugin can change anything outside its sandbox.
func (g Grant) Writes() bool {
	return slices.ContainsFunc(Capabilities, func(c Capability) bool { return c.Writes != nil && c.Writes(g) })
}

// flag returns a capability that is granted or is not.
func flag(name, doc string, needed func(abi.Needs) bool, granted func(Grant) bool, ops map[string]operation) Capability {
	names := func(listed bool) []string {
		if listed {
			return []string{name}
		}
		return nil
	}

	return Capability{
		Name: name, Doc: doc, ops: ops,
		Missing: func(n abi.Needs, g Grant) []string { return names(needed(n) && !granted(g)) },
		Granted: func(g Grant) []string { return names(granted(g)) },
	}
}
