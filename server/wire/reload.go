package wire

import "strings"

// Reload is the response body of POST /v1/reload: what changed in the configuration and the
// plugins.
type Reload struct {
	Changed []SettingChange `json:"changed"` // changes that are in effect now
	Restart []SettingChange `json:"restart"` // changes that take effect only after a restart

	Added    []string      `json:"added,omitempty"`    // new plugins
	Replaced []string      `json:"replaced,omitempty"` // plugins with a new file or new grants
	Removed  []string      `json:"removed,omitempty"`  // removed plugins
	Solved   []string      `json:"solved,omitempty"`   // files that had a problem and have none now, except the files of added or replaced plugins
	Problems []FileProblem `json:"problems"`           // new problems with files or grants

	DryRun bool `json:"dry_run,omitempty"` // nothing was changed: the configuration was only read and checked
}

// A SettingChange is a setting of the server whose value has changed.
type SettingChange struct {
	Key string `json:"key"`           // key in the configuration file
	Old string `json:"old,omitempty"` // previous value; absent, like the new value, if the values may be secret
	New string `json:"new,omitempty"`
}

// String returns the change as one line of text.
func (c SettingChange) String() string {
	if c.Old == "" && c.New == "" {
		return c.Key + ": changed"
	}
	return c.Key + ": " + c.Old + " → " + c.New
}

// Lines describes the changes to the operator, one per line.
func (r Reload) Lines() (lines []string) {
	for _, c := range r.Changed {
		lines = append(lines, c.String())
	}
	for _, c := range r.Restart {
		lines = append(lines, "needs a restart: "+c.String())
	}

	for _, plugins := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"changed", r.Replaced}, {"removed", r.Removed}} {
		if len(plugins.names) > 0 {
			lines = append(lines, "plugins "+plugins.what+": "+strings.Join(plugins.names, ", "))
		}
	}
	for _, file := range r.Solved {
		lines = append(lines, "solved the problem of "+file)
	}
	for _, p := range r.Problems {
		lines = append(lines, "problem: "+p.File+": "+p.Error)
	}

	if r.Empty() {
		return []string{"nothing has changed"}
	}
	return lines
}

// Empty reports whether nothing has changed.
func (r Reload) Empty() bool {
	return len(r.Changed)+len(r.Restart)+len(r.Added)+len(r.Replaced)+len(r.Removed)+len(r.Solved)+len(r.Problems) == 0
}
