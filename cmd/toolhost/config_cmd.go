package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func configCommand(a *app) *cobra.Command {
	var check, schema bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force and where each value comes from",
		Long: `Show the configuration in force and where each value comes from: a file, a
variable, a flag, or the default. The last column says when a change applies to a
server that runs: live (see toolhost reload), or at its restart.

--check prints nothing if the configuration works. Otherwise it lists every
problem and exits with code 2. It reports more than other commands do: missing folders,
folders that other users can write to, plugins that cannot be loaded, grants that are
less than what their plugin needs, grants for plugins that do not exist, contradictory
limits, addresses that other machines can reach, and a file in this folder that is not
trusted.

--schema prints a JSON Schema of configuration files. Editors use it to complete
and check them.`,
		Example: `  toolhost config --check
  toolhost config --schema >toolhost.schema.json`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // it loads what it needs itself
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case schema:
				a.printJSON(configSchema())
				return nil
			case check:
				a.config, _ = loadConfig(cmd.Flags(), a.environ) // its problems are reported below
				c := configCheck{a.config}
				c.checkUse()
				if err := c.checkPlugins(cmd.Context()); err != nil {
					return err
				}
				return a.config.problems.usage()
			}

			if err := a.load(cmd.Flags()); err != nil {
				return err
			}
			return a.showConfig()
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&check, "check", false, "report every problem, and fail if there is one")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of configuration files")
	cmd.MarkFlagsMutuallyExclusive("check", "schema")
	return cmd
}

// showConfig shows all settings: the defaults, or the values that replace them.
func (a *app) showConfig() error {
	settings := showValues(a.config.inForce())
	return a.answer(settings, nil, func() {
		var rows [][]string
		for _, s := range settings {
			rows = append(rows, []string{s.Key, s.text(), s.Source, string(s.Effect)})
		}
		a.table(rows)
	})
}

// inForce returns the values of all settings: the defaults, or the values that
// replace them.
func (c *loadedConfig) inForce() map[string]value {
	all := map[string]value{}
	for _, s := range newLoaded().table {
		if s.kind.each == nil {
			all[s.key] = value{setting: s, raw: s.byDefault(), source: "default"}
		}
	}
	maps.Copy(all, c.values)
	return all
}

// shown is the value of a setting and its source.
type shown struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
	Effect effect `json:"applies"` // when a change takes effect
}

// text returns the value on one line. Lists and mappings are in YAML's flow
// style.
func (s shown) text() string {
	switch reflect.ValueOf(s.Value).Kind() {
	case reflect.Slice, reflect.Map:
		if text, err := json.Marshal(s.Value); err == nil {
			return oneLine(string(text))
		}
	}
	return oneLine(fmt.Sprint(s.Value))
}

// tokens lists the settings whose values are never shown.
var tokens = []string{"token", "approvals.token", "metrics.token"}

// showValues returns the values in the form in which they are shown, sorted by
// key. It omits tokens.
func showValues(values map[string]value) (out []shown) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		switch {
		case v.raw == nil:
			v.raw = ""
		case slices.Contains(tokens, key) && v.raw != "":
			v.raw = "<redacted>"
		case key == "engine" || key == "egress.proxy":
			v.raw = withoutPassword(fmt.Sprint(v.raw))
		}
		out = append(out, shown{key, v.raw, v.source, v.effect})
	}
	return out
}

// withoutPassword returns the URL of an engine or a proxy, with its password
// removed.
func withoutPassword(raw string) string {
	u, err := url.Parse(raw)
	hides := strings.Contains(raw, "@") || strings.Contains(strings.ToLower(raw), "password")
	switch {
	case err == nil && !hides:
		return raw
	case err != nil || u.Scheme == "" || u.Opaque != "" || strings.Contains(u.RawQuery, "password"):
		return "<redacted>"
	}
	return u.Redacted()
}

// byDefault returns the default of a setting in the form used in files. It
// returns nothing if there is no default, or if the default depends on other
// settings.
func (s setting) byDefault() any {
	value := s.builtIn
	if value == nil || s.key == "data" {
		value = reflect.ValueOf(s.to).Elem().Interface()
	}

	switch {
	case reflect.TypeOf(value) == reflect.TypeFor[note]():
		return ""
	case s.kind.show != nil:
		return s.kind.show(value)
	}
	return value
}

// configSchema returns the JSON Schema of a configuration file.
func configSchema() schema {
	all := objectSchema(newLoaded().table)
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["title"] = "Configuration of Toolhost"
	return all
}

// link matches a Markdown link, and captures its text.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// objectSchema returns the JSON Schema of a mapping whose keys are exactly those
// of a table.
func objectSchema(table []setting) schema {
	object := func() schema {
		return schema{"type": "object", "properties": schema{}, "additionalProperties": false}
	}
	whole := object()
	for _, s := range table {
		at := whole
		parts := strings.Split(s.key, ".")
		last := len(parts) - 1
		for _, part := range parts[:last] {
			properties := at["properties"].(schema)
			if properties[part] == nil {
				properties[part] = object()
			}
			at = properties[part].(schema)
		}

		doc := strings.ReplaceAll(link.ReplaceAllString(s.doc, "$1"), "`", "")
		if s.kind.each != nil {
			at["description"], at["additionalProperties"] = doc, objectSchema(s.kind.each(""))
			continue
		}

		own := maps.Clone(s.kind.schema)
		own["description"] = doc
		if value := s.byDefault(); value != "" && s.key != "data" {
			own["default"] = value
		}
		at["properties"].(schema)[parts[last]] = own
	}

	properties := whole["properties"].(schema)
	for name, group := range properties { // a group with a mode can be given as its mode, see flatten
		if inner, ok := group.(schema)["properties"].(schema); ok && inner["mode"] != nil {
			properties[name] = anyOf(inner["mode"].(schema), group.(schema))
		}
	}
	return whole
}
