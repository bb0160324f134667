package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func configCommand(a *app) *cobra.Command {
	var check, schema bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force and where each value comes from",
		Long: `Show the configuration in force and where each value comes from: a file, a
variable, a flag, or the default.

--check prints nothing if the configuration works. Otherwise it lists every
problem and exits with 2. It reports more than other commands do: missing folders,
folders that other users can write to, contradictory limits, addresses that other
machines can reach, and a file in this folder that is not trusted.

--schema prints a JSON Schema of configuration files. Editors use it to complete
and to check them.`,
		Example: `  toolhost config --check
  toolhost config --schema >toolhost.schema.json`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case schema: // it does not depend on any configuration
				return nil
			case check: // reports the problems of loading with its own
				a.config, _ = loadConfig(cmd.Flags(), a.environ)
				return nil
			}
			return a.load(cmd.Flags())
		},
		RunE: func(*cobra.Command, []string) error {
			switch {
			case schema:
				a.printJSON(configSchema())
				return nil
			case check:
				a.config.checkUse()
				return a.config.problems.usage()
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

func (a *app) showConfig() error {
	values := a.config.values()
	if a.json {
		a.printJSON(values)
		return nil
	}

	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, v := range values {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v.Key, v.text(), v.Source)
	}
	a.flush(w)
	return nil
}

// shown is the value of a setting and its source.
type shown struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// text is the value as a line shows it, lists as YAML can have them.
func (s shown) text() string {
	if reflect.ValueOf(s.Value).Kind() == reflect.Slice {
		if text, err := json.Marshal(s.Value); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(s.Value)
}

// values are all settings, with what is granted to plugins.
func (c *loaded) values() []shown {
	defaults := newConfig()
	all := map[string]shown{}
	for _, s := range settings(&defaults) {
		if s.key != "grants" {
			all[s.key] = shown{s.key, s.byDefault(), "default"}
		}
	}
	for _, s := range c.set() {
		all[s.Key] = s
	}

	return slices.SortedFunc(maps.Values(all), func(a, b shown) int { return strings.Compare(a.Key, b.Key) })
}

// set are the settings that a source has.
func (c *loaded) set() (out []shown) {
	for _, at := range c.merged.Keys() {
		key := strings.ReplaceAll(at, delim, ".")
		s := shown{key, c.merged.Get(at), c.from(key)}
		if key == "token" && s.Value != "" {
			s.Value = "<redacted>"
		}
		if s.Value == nil {
			s.Value = ""
		}
		out = append(out, s)
	}
	return out
}

// byDefault is the value in force if nobody sets one, as a file would have it;
// empty if it is none, or depends on others.
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

// configSchema is the JSON Schema of a configuration file.
func configSchema() schema {
	defaults := newConfig()
	all := objectSchema(settings(&defaults))
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["title"] = "Configuration of Toolhost"
	return all
}

// link is a link in Markdown, with the text in it.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// objectSchema is the JSON Schema of a mapping with the keys of a table and no
// others.
func objectSchema(table []setting) schema {
	properties := schema{}
	for _, s := range table {
		at := properties
		parts := strings.Split(s.key, ".")
		for _, part := range parts[:len(parts)-1] {
			if at[part] == nil {
				at[part] = schema{"type": "object", "properties": schema{}, "additionalProperties": false}
			}
			at = at[part].(schema)["properties"].(schema)
		}

		own := maps.Clone(s.kind.schema)
		own["description"] = strings.ReplaceAll(link.ReplaceAllString(s.doc, "$1"), "`", "")
		if value := s.byDefault(); value != "" && s.key != "data" {
			own["default"] = value
		}
		at[parts[len(parts)-1]] = own
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}
}
