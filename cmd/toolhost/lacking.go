package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/plugins"
)

// lacking are the lines of a configuration, in YAML, that grant plugins what they
// need and lack. It is empty if they lack nothing.
func lacking(all ...*plugins.Plugin) string {
	var text strings.Builder
	for _, p := range slices.SortedFunc(slices.Values(all), func(a, b *plugins.Plugin) int { return cmp.Compare(a.Manifest.Name, b.Manifest.Name) }) {
		if len(p.Missing) == 0 {
			continue
		}
		if text.Len() == 0 {
			text.WriteString("grants:\n")
		}
		fmt.Fprintf(&text, "  %s:\n", quoted(p.Manifest.Name))
		writeGrant(&text, p.Grant.Lacking(p.Manifest.Needs))
	}
	return text.String()
}

// writeGrant writes what a grant has as the keys of a plugin below grants.
func writeGrant(text *strings.Builder, g host.Grant) {
	for _, s := range grantSettings(&g) {
		value := reflect.ValueOf(s.to).Elem()
		if value.IsZero() {
			continue
		}

		switch v := value.Interface().(type) {
		case bool, abi.StoreMode, host.KVScope, int, int64:
			if group, key, ok := strings.Cut(s.key, "."); ok { // kv.mode is the first of its group
				if key == "mode" {
					fmt.Fprintf(text, "    %s:\n", group)
				}
				fmt.Fprintf(text, "      %s: %v\n", key, v)
				continue
			}
			fmt.Fprintf(text, "    %s: %v\n", s.key, v)
		case map[string]string:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(text, "      %s: %s\n", quoted(name), quoted(v[name]))
			}
		case []string:
			fmt.Fprintf(text, "    %s: [%s]\n", s.key, strings.Join(v, ", ")) // names of tools
		case []host.HTTPRule:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, r := range v {
				fmt.Fprintf(text, "      - %s\n", ruleText(r))
			}
		case []host.Mount:
			fmt.Fprintf(text, "    %s:\n", s.key)
			for _, m := range v {
				mode := map[bool]string{false: "read", true: "write"}[m.Write]
				fmt.Fprintf(text, "      - {dir: %s, path: %s, mode: %s}\n", quoted(m.Dir), quoted(m.Path), mode)
			}
		}
	}
}

// ruleText is a rule as YAML has it.
func ruleText(r host.HTTPRule) string {
	out := "{url: " + quoted(r.URL)
	if len(r.Methods) > 0 {
		methods := make([]string, len(r.Methods))
		for i, m := range r.Methods {
			methods[i] = quoted(m)
		}
		out += ", methods: [" + strings.Join(methods, ", ") + "]"
	}
	if r.Private {
		out += ", private: true"
	}
	return out + "}"
}

// bare matches texts that YAML takes as they are, unless they are words of YAML.
var bare = regexp.MustCompile(`^(/[A-Za-z0-9_./-]*|[A-Za-z_][A-Za-z0-9_]*)$`)

var yamlWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

// quoted is a text as YAML has it.
func quoted(s string) string {
	if bare.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// addTo says where lines of a configuration belong, before they follow.
func (c *loaded) addTo() string {
	name := filepath.Join(userConfig(), configNames[0])
	if n := len(c.files); n > 0 {
		name = c.files[n-1]
	}
	to := "add to "
	for key, v := range c.values {
		if v.source == name && strings.HasPrefix(key, "grants.") {
			to = "add to the grants of " // a second mapping of that name would be refused
		}
	}
	return fmt.Sprintf(to+"%s, with your own choice for each %s, as YAML:", oneLine(name), host.Choose)
}

// announceLacking prints what to add to the configuration for plugins that lack
// grants.
func (a *app) announceLacking(all []*plugins.Plugin) {
	switch lines := lacking(all...); {
	case lines == "":
	case a.config.logFormat == formatJSON:
		a.announceAs(slog.LevelWarn, a.config.addTo(), "configuration", lines)
	default:
		a.notef("toolhost: %s\n%s", a.config.addTo(), strings.TrimSuffix(lines, "\n"))
	}
}
