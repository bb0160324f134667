package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/document"
	"github.com/toolhost/toolhost/internal/lock"
	"github.com/toolhost/toolhost/plugins"
)

// wantedNeeds lists the needs of a plugin that are to be granted.
type wantedNeeds struct {
	*plugins.Plugin
	needs abi.Needs
}

// lacking returns YAML lines for a configuration that grant plugins what they and their
// tools lack: see lines. It is empty if nothing is missing.
func (c *config) lacking(all ...*plugins.Plugin) string {
	var lack []wantedNeeds
	for _, p := range slices.SortedFunc(slices.Values(all), func(a, b *plugins.Plugin) int { return cmp.Compare(a.Manifest.Name, b.Manifest.Name) }) {
		if len(p.Missing) > 0 {
			lack = append(lack, wantedNeeds{p, p.Manifest.AllNeeds()})
		}
	}
	return c.lines(lack...)
}

// lines returns YAML lines for a configuration that grant those needs that are not
// granted yet, along with the secrets that the needs name but that are not configured.
// Optional needs become comments.
func (c *config) lines(all ...wantedNeeds) string {
	var text strings.Builder
	secrets := map[string][]host.HTTPRule{}
	for _, w := range all {
		var required, every strings.Builder
		add := w.Grant.Lacking(w.needs)
		writeGrant(&required, add)
		writeGrant(&every, w.Grant.Lacking(w.needs.All()))
		if every.Len() == 0 {
			continue
		}

		if text.Len() == 0 {
			text.WriteString("grants:\n")
		}
		fmt.Fprintf(&text, "  %s:\n", document.QuoteYAML(w.Manifest.Name))
		commentOptional(&text, required.String(), every.String())

		for _, r := range add.HTTP {
			if r.Secret != "" && c.secrets[r.Secret] == nil {
				secrets[r.Secret] = append(secrets[r.Secret], r)
			}
		}
	}

	if len(secrets) > 0 {
		text.WriteString("secrets:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		writeSecret(&text, name, secrets[name])
	}
	return text.String()
}

// allLines is like lines, for all needs of a plugin and its tools.
func (c *config) allLines(p *plugins.Plugin) string {
	return c.lines(wantedNeeds{p, p.Manifest.AllNeeds()})
}

// commentOptional writes the lines of a grant that covers every need. Lines that are not
// also needed for the required needs become comments.
func commentOptional(text *strings.Builder, required, every string) {
	needed := settingsIn(required)
	for _, lines := range settingsIn(every) {
		key, _, _ := strings.Cut(lines[0], ":")
		var have []string
		if i := slices.IndexFunc(needed, func(n []string) bool { return strings.HasPrefix(n[0], key+":") }); i >= 0 {
			have = needed[i]
		}
		text.WriteString(strings.Join(have, ""))

		optional := lock.Beyond(lines, have)
		for i, line := range optional {
			indent := optional[0][:len(optional[0])-len(strings.TrimLeft(optional[0], " "))]
			if i == 0 {
				text.WriteString(indent + "# optional:\n")
			}
			text.WriteString(indent + "# " + line[len(indent):])
		}
	}
}

// settingsIn returns the lines of each setting in a plugin's grant.
func settingsIn(grant string) (all [][]string) {
	for line := range strings.Lines(grant) {
		if !strings.HasPrefix(line, "     ") { // deeper than the names of settings
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	return all
}

// writeSecret writes the configuration of a secret that is for the requests in rules.
func writeSecret(text *strings.Builder, name string, rules []host.HTTPRule) {
	var hosts []string
	plain := false
	for _, r := range rules {
		if h := secretHost(r.URL); !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
		plain = plain || strings.HasPrefix(r.URL, "http://")
	}

	fmt.Fprintf(text, "  %s:\n    env: %s\n    hosts: %s\n    bearer: true\n", document.QuoteYAML(name), host.Choose, flowValue(hosts))
	if plain {
		text.WriteString("    http: true\n")
	}
}

// secretHost returns the host in a rule, in the form in which a secret lists it.
func secretHost(rule string) string {
	_, rest, _ := strings.Cut(rule, "://")
	authority, _, _ := strings.Cut(rest, "/")
	if name, _, err := net.SplitHostPort(authority); err == nil {
		authority = name
	}
	if authority == "*" {
		return host.Choose
	}
	return strings.Trim(authority, "[]")
}

// writeGrant writes a grant as the keys that a plugin has below grants.
func writeGrant(text *strings.Builder, g host.Grant) {
	for _, s := range grantSettings(&g) {
		value := reflect.ValueOf(s.to).Elem()
		if value.IsZero() {
			continue
		}

		switch v := value.Interface().(type) {
		case map[string]string:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(text, "      %s: %s\n", document.QuoteYAML(name), document.QuoteYAML(v[name]))
			}
		case []host.HTTPRule:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, r := range v {
				fmt.Fprintf(text, "      - %s\n", flowMapping(ruleSettings(&r)))
			}
		case []host.Mount:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, m := range v {
				m.Mode = cmp.Or(m.Mode, abi.FileRead)
				fmt.Fprintf(text, "      - %s\n", flowMapping(mountSettings(&m)))
			}
		default:
			if group, key, ok := strings.Cut(s.key, "."); ok { // kv.mode is the first key of its group
				if key == "mode" {
					fmt.Fprintf(text, "    %s:\n", group)
				}
				s.key = "  " + key
			}
			fmt.Fprintf(text, "    %s: %s\n", s.key, flowValue(v))
		}
	}
}

// flowMapping returns those settings in a table that have a value, on one line of YAML.
func flowMapping(table []setting) string {
	var fields []string
	for _, s := range table {
		if value := reflect.ValueOf(s.to).Elem(); !value.IsZero() {
			fields = append(fields, s.key+": "+flowValue(value.Interface()))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// flowValue returns a value on one line of YAML.
func flowValue(value any) string {
	switch v := value.(type) {
	case string:
		return document.QuoteYAML(v)
	case []string:
		var items []string
		for _, item := range v {
			items = append(items, document.QuoteYAML(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// addTo introduces lines of a configuration by saying where to add them.
func (c *loadedConfig) addTo() string {
	name := filepath.Join(userConfig(), configNames[0])
	if n := len(c.files); n > 0 {
		name = c.files[n-1]
	}
	to := "add to "
	for key, v := range c.values {
		if v.source == name && strings.HasPrefix(key, "grants.") {
			to = "add to the grants of " // a second mapping with that name would be refused
		}
	}
	return fmt.Sprintf(to+"%s, with your own choice for each %s, as YAML:", oneLine(name), host.Choose)
}

// announceLacking prints what to add to the configuration for plugins that lack grants.
func (a *app) announceLacking(all []*plugins.Plugin) {
	switch lines := a.now().lacking(all...); {
	case lines == "":
	case a.config.logFormat == formatJSON:
		a.announceAs(slog.LevelWarn, a.now().addTo(), "configuration", lines)
	default:
		a.notef("toolhost: %s\n%s", a.now().addTo(), strings.TrimSuffix(lines, "\n"))
	}
}
