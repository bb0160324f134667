package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/webui"
)

func configCommand(a *app) *cobra.Command {
	var check, schema bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration in force and where each value comes from",
		Long: `Show the configuration in force and where each value comes from: a file, a
variable, a flag, or the default.

--check prints nothing if the configuration works. Otherwise it lists every
problem and exits with code 2. It reports more than other commands do: missing folders,
folders that other users can write to, contradictory limits, addresses that other
machines can reach, grants for plugins that do not exist, and a file in this folder
that is not trusted.

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
				a.config, _ = loadConfig(cmd.Flags(), a.environ) // its problems are among those that are reported
				a.config.checkUse()
				if err := a.config.checkPlugins(cmd.Context()); err != nil {
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

// showConfig shows all settings: the defaults, and what a source says instead.
func (a *app) showConfig() error {
	settings := showValues(a.config.inForce())
	return a.answer(settings, nil, func() {
		var rows [][]string
		for _, s := range settings {
			rows = append(rows, []string{s.Key, s.text(), s.Source})
		}
		a.table(rows)
	})
}

// inForce returns all settings: the defaults, and what a source says instead.
func (c *loaded) inForce() map[string]value {
	all := map[string]value{}
	for _, s := range newLoaded().table {
		if s.kind.each == nil {
			all[s.key] = value{raw: s.byDefault(), source: "default"}
		}
	}
	maps.Copy(all, c.values)
	return all
}

// pageSettings returns all settings for the operators' page. Of mappings, which are
// variables and settings of plugins, it has only the names: their values may be secret.
func (a *app) pageSettings() (out []webui.Setting) {
	all := a.config.inForce()
	if now := a.inForce.Load(); now != nil {
		grants := func(key string, _ value) bool { return strings.HasPrefix(key, "grants.") }
		maps.DeleteFunc(all, grants)
		for key, v := range now.values {
			if grants(key, v) {
				all[key] = v
			}
		}
	}
	for key, v := range all {
		if names := reflect.ValueOf(v.raw); names.Kind() == reflect.Map {
			var known []string
			for _, name := range names.MapKeys() {
				known = append(known, fmt.Sprint(name.Interface())+"=…")
			}
			slices.Sort(known)
			all[key] = value{raw: strings.Join(known, " "), source: v.source}
		}
	}
	for _, s := range showValues(all) {
		out = append(out, webui.Setting{Key: s.Key, Value: s.text(), Source: s.Source})
	}
	return out
}

// shown is the value of a setting and its source.
type shown struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// text is the value as a line shows it, lists and mappings as YAML can have them.
func (s shown) text() string {
	switch reflect.ValueOf(s.Value).Kind() {
	case reflect.Slice, reflect.Map:
		if text, err := json.Marshal(s.Value); err == nil {
			return oneLine(string(text))
		}
	}
	return oneLine(fmt.Sprint(s.Value))
}

// tokens are the settings whose values nobody is shown.
var tokens = []string{"token", "approvals.token"}

// showValues returns values sorted by key, without the tokens.
func showValues(values map[string]value) (out []shown) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		switch {
		case v.raw == nil:
			v.raw = ""
		case slices.Contains(tokens, key) && v.raw != "":
			v.raw = "<redacted>"
		case key == "egress.proxy":
			v.raw = withoutPassword(fmt.Sprint(v.raw))
		}
		out = append(out, shown{key, v.raw, v.source})
	}
	return out
}

// withoutPassword is a URL that may be shown.
func withoutPassword(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.User == nil {
		return raw
	} else if err == nil {
		return u.Redacted()
	}
	return "<redacted>"
}

// byDefault returns the default of a setting as a file would write it: empty if
// it has no default, or if the default depends on other settings.
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
	all := objectSchema(newLoaded().table)
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["title"] = "Configuration of Toolhost"
	return all
}

// link is a link in Markdown, with the text in it.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// objectSchema is the JSON Schema of a mapping with the keys of a table and no
// others.
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
	return whole
}

// check reports values that contradict others.
func (c *loaded) check() {
	most := cmp.Or(c.server.MaxLimits.Background, background.DefaultMaxTimeout)
	after := c.server.ParkAfter
	if c.server.Park != server.ParkNever && after > 0 && after+server.ParkedTime > most && !c.problems.has("max_limits.background") {
		c.problem("background.park_after", "a call that is parked after %v may take %v, and max_limits.background is %v: raise it, park sooner, or set background.park to never",
			after, after+server.ParkedTime, most)
	}

	if o := c.issuer(); o != nil && o.Check() != nil {
		for line := range strings.SplitSeq(o.Check().Error(), "\n") {
			key, text, _ := strings.Cut(line, ": ")
			c.problem("oauth."+key, "%s", text)
		}
	}
}

// issuer is the issuer of access tokens; nil if none is configured.
func (c *config) issuer() *identity.OAuth {
	if o := c.oauth; o.Issuer == "" && o.Audience == "" && o.JWKS == "" && len(o.Scopes) == 0 {
		return nil
	}
	return &c.oauth
}

// checkUse reports settings that are valid on their own but cannot work here:
// missing or unsafe folders, contradictory limits, an open address, an untrusted
// file.
func (c *loaded) checkUse() {
	c.checkListen()
	c.checkLimits()
	for _, f := range c.ignored {
		c.problems = append(c.problems, problem{text: f.String()})
	}

	for i, dir := range c.plugins {
		c.checkFolder(fmt.Sprintf("plugins.%d", i), dir, true)
	}
	for name, g := range c.server.Grants {
		for i, m := range g.Files {
			c.checkFolder(fmt.Sprintf("grants.%s.files.%d.dir", name, i), m.Dir, false)
		}
		for i, rule := range g.HTTP {
			if rule.Secret != "" && c.secrets[rule.Secret] == nil {
				c.problem(fmt.Sprintf("grants.%s.http.%d.secret", name, i), "there is no secret %q: add secrets.%s", rule.Secret, rule.Secret)
			}
		}
	}
	if err := c.checkKeys(); err != nil {
		c.problem("secrets_key", "%v", err)
	}
	c.checkSecrets()
	if _, err := os.Stat(c.data); !errors.Is(err, fs.ErrNotExist) { // it would be made
		c.checkFolder("data", c.data, true)
	}
}

// checkKeys returns what is wrong with the keys for secrets of users, if there are any.
func (c *config) checkKeys() error {
	for name, s := range c.secrets {
		if s.Scope == vault.OfUser && c.secretsKey == "" {
			return fmt.Errorf("the secret %q is of users, and needs a key: run toolhost secret key FILE, and name the file here", name)
		}
	}
	if c.secretsKey == "" {
		return nil
	}
	return vault.Keys(c.secretsKey).Check()
}

// checkSecrets reports missing files of secrets: calls would end with a connection that is
// required.
func (c *loaded) checkSecrets() {
	for name, s := range c.secrets {
		if s.File == "" {
			continue
		}
		if _, err := os.Stat(s.File); err != nil {
			c.problem("secrets."+name+".file", "%v", err)
		}
	}
}

// checkFolder reports a missing folder, or one that must be safe and is not.
func (c *loaded) checkFolder(key, dir string, safe bool) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err == nil && safe {
		if unsafe := owned.Behind(dir); errors.Is(unsafe, owned.ErrUnsafe) {
			err = unsafe
		}
	}
	if err != nil {
		c.problem(key, "%v", err)
	}
}

// checkLimits reports limits that another limit keeps from ever being reached.
func (c *loaded) checkLimits() {
	limits := map[string]string{"background.per_session": "background.per_host"}
	for _, name := range []string{"fuel", "memory", "output", "timeout", "background"} {
		limits["limits."+name] = "max_limits." + name
	}
	for limit, most := range limits {
		if _, set := c.values[limit]; !set || c.number(limit) <= c.number(most) || c.problems.has(most) {
			continue
		}
		switch _, bounded := c.values[most]; {
		case c.number(limit) < int64(server.NoLimit):
			c.problem(limit, "exceeds %s: lower one or raise the other", most)
		case bounded:
			c.problem(limit, "none exceeds %s: leave that out for no limit, or set this one", most)
		}
	}
}

// number is the number in force for a key.
func (c *loaded) number(key string) int64 {
	s := c.table[slices.IndexFunc(c.table, func(s setting) bool { return s.key == key })]
	return cmp.Or(reflect.ValueOf(s.to).Elem().Int(), reflect.ValueOf(s.builtIn).Int())
}

// minToken is the smallest length of a token, in bytes, if other machines can try
// to guess it.
const minToken = 16

// checkListen reports an address that other machines could reach without a good
// token.
func (c *loaded) checkListen() {
	const key = "serve.listen"
	if c.listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(c.listen); err != nil {
		c.problem(key, "%s: expected host:port, such as 127.0.0.1:7070", c.listen)
		return
	}
	if identity.Loopback(c.listen) {
		return
	}

	if n := len(c.token); n > 0 && n < minToken {
		c.problem("token", "other machines could reach %s, and a token of %d characters can be guessed: set TOOLHOST_TOKEN to %d or more random characters, such as the output of openssl rand -hex 16",
			c.listen, n, minToken)
	}

	if c.token == "" && c.issuer() == nil {
		c.problem(key, "other machines could reach %s, and no token is configured: listen on 127.0.0.1 or localhost, set TOOLHOST_TOKEN to a long random token, or set oauth.issuer and oauth.audience",
			c.listen)
	}
}
