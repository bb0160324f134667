package httpapi

import (
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// errorKinds are the kinds of run errors.
var errorKinds = []string{
	string(wire.KindToolError), string(wire.KindInternal), string(wire.KindTimeout), string(wire.KindFuelExhausted), string(wire.KindMemoryLimit),
	string(wire.KindOutputLimit), string(wire.KindTrap), string(wire.KindConnectionRequired), string(wire.KindLimit), string(wire.KindRejected),
	string(wire.KindOrphaned), string(wire.KindInterrupted),
}

// filters returns the parameters that select runs by their properties.
func filters() []param {
	var statuses []string
	for _, s := range wire.Statuses {
		statuses = append(statuses, string(s))
	}
	status := oneOf("status", statuses...)
	status.many = len(statuses)
	kinds := oneOf("error", errorKinds...)
	kinds.many = len(errorKinds)
	all := []param{status, kinds, oneOf("kind", "wasm", "go")}
	for _, name := range []string{"tool", "plugin", "text"} {
		all = append(all, formed(name, textForm, "expected 1 to 128 characters"))
	}
	for _, name := range []string{"created_since", "created_until", "started_since", "started_until"} {
		all = append(all, param{name: name, expected: "expected a time such as 2006-01-02T15:04:05Z", valid: func(v string) bool {
			_, err := time.Parse(time.RFC3339, v)
			return err == nil
		}})
	}
	return all
}

func filterNames() (names []string) {
	for _, p := range filters() {
		names = append(names, p.name)
	}
	return names
}

// filter returns the filter that the parameters describe.
func (r *request) filter() server.RunFilter {
	f := server.RunFilter{
		Tool: r.get("tool"), Kind: r.get("kind"), Plugin: r.get("plugin"), Text: r.get("text"),
		Since: r.time("created_since"), Until: r.time("created_until"), StartedSince: r.time("started_since"), StartedUntil: r.time("started_until"),
	}
	values := r.URL.Query()
	for _, status := range values["status"] {
		f.Statuses = append(f.Statuses, server.RunStatus(status))
	}
	for _, kind := range values["error"] {
		f.Errors = append(f.Errors, server.RunErrorKind(kind))
	}
	return f
}

// time returns a parameter as a time; zero if it is absent.
func (r *request) time(name string) time.Time {
	at, _ := time.Parse(time.RFC3339, r.get(name)) // checked before
	return at
}
