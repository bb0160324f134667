package abi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names are matched by hand: package regexp would make every plugin written in Go a
// tenth larger.
const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isName reports whether s matches [a-z][a-z0-9_]*, as names of plugins and tools
// must.
func isName(s string) bool {
	return s != "" && consists(s[:1], lower) && consists(s, lower+digits+"_")
}

// IsAgentName reports whether s is a valid name by which agents can know a tool.
func IsAgentName(s string) bool { return len(s) <= MaxAgentName && isName(s) }

// isEnvName reports whether a name is [A-Za-z_][A-Za-z0-9_]*.
func isEnvName(s string) bool {
	return s != "" && !strings.Contains(digits, s[:1]) && consists(s, letters+digits+"_")
}

// IsSecretName reports whether s is a valid name for a secret.
func IsSecretName(s string) bool {
	return s != "" && len(s) <= MaxSecretName && consists(s, letters+digits+"_-")
}

// consists reports whether s consists only of those ASCII bytes.
func consists(s, bytes string) bool { return strings.TrimLeft(s, bytes) == "" }

// isSemver reports whether s is a semantic version as semver.org defines it in 2.0.0.
func isSemver(s string) bool {
	s, build, hasBuild := strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(s, "-")
	numbers := strings.Split(core, ".")
	for _, n := range numbers {
		if n == "" || !consists(n, digits) || n[0] == '0' && n != "0" {
			return false
		}
	}
	return len(numbers) == 3 && (!hasPre || isVersionTail(pre)) && (!hasBuild || isVersionTail(build))
}

func isVersionTail(s string) bool { return s != "" && consists(s, letters+digits+".-") }

// check returns the problems that decoding alone cannot find.
func (m *Manifest) check() []Problem {
	c := &decoder{}
	if m.ABI != Version {
		c.add("/abi", "expected %q, found %q: this host speaks no other version", Version, m.ABI)
	}
	if !isName(m.Name) || len(m.Name) > 32 {
		c.add("/name", "expected a name of [a-z][a-z0-9_]{0,31}, found %q", m.Name)
	}
	if len(m.Requires) > maxRequires {
		c.add("/requires", "expected at most %d features, found %d", maxRequires, len(m.Requires))
	}
	for i, name := range m.Requires {
		if !isFeature(name) {
			c.add("/requires/"+strconv.Itoa(i), "expected the name of a feature such as kv, found %q", name)
		}
	}
	if !isSemver(m.Version) {
		c.add("/version", "expected a semantic version such as 1.0.0, found %q", m.Version)
	}

	c.description("/description", m.Description)
	if len(m.Tools) == 0 || len(m.Tools) > MaxTools {
		c.add("/tools", "expected 1 to %d tools, found %d", MaxTools, len(m.Tools))
	}

	first := map[string]int{}
	for i := range m.Tools {
		at := "/tools/" + strconv.Itoa(i)
		if j, ok := first[m.Tools[i].Name]; ok {
			c.add(at+"/name", "the name %q is taken by /tools/%d", m.Tools[i].Name, j)
		} else {
			first[m.Tools[i].Name] = i
		}
		c.tool(at, m.Name, &m.Tools[i])
	}

	c.needs("/needs", &m.Needs)
	if n := m.countNeeds(); n > MaxNeeds {
		c.add("/needs", "expected at most %d needs of the plugin and its tools, found %d", MaxNeeds, n)
	}
	if m.ConfigSchema != nil {
		c.schema("/config_schema", m.ConfigSchema, false)
		var root struct{ Type any }
		if json.Unmarshal(m.ConfigSchema, &root) == nil && root.Type != "object" {
			c.add("/config_schema/type", `expected "object": settings have names`)
		}
	}
	c.count("/host_functions", "functions", len(m.HostFunctions))
	for _, name := range slices.Sorted(maps.Keys(m.HostFunctions)) {
		if tool := m.HostFunctions[name]; !slices.Contains(m.Needs.Tools, tool) && !slices.Contains(m.Needs.Tools, EveryTool) {
			c.add("/host_functions/"+escape(name), "the plugin needs the tool %q then: name it in needs.tools", tool)
		}
	}
	c.directories(m)
	c.closedWorld(m)
	return c.problems
}

// Check returns the problems of a tool that belongs to no plugin. Agents see that tool under
// its own name.
func (t *Tool) Check() []Problem {
	d := &decoder{}
	d.tool("", t.Name, t)
	return d.problems
}

func (d *decoder) description(pointer, text string) {
	if strings.TrimSpace(text) == "" {
		d.add(pointer, "expected a description, found an empty one: it is all a model knows")
	}
	if n := utf8.RuneCountInString(text); n > MaxDescription {
		d.add(pointer, "expected at most %d characters, found %d: each costs tokens in every model call", MaxDescription, n)
	}
	d.visible(pointer, text)
}

// visible refuses characters that a model reads and a person does not see: with them a
// plugin could instruct a model behind the back of whoever reviews it.
func (d *decoder) visible(pointer, text string) {
	before := rune(0)
	for _, r := range text {
		if IsHidden(r, before) {
			d.add(pointer, "has the character U+%04X, which models read and people do not see: remove it", r)
			return
		}
		before = r
	}
}

// IsHidden reports whether people cannot see the character r, where before is the character in
// front of it: r has no width, changes the direction of writing, or is a tag. Joiners are not
// hidden in scripts that need them, nor in emoji.
func IsHidden(r, before rune) bool {
	switch {
	case r == '\u200c' || r == '\u200d':
		return before < 0x300 || unicode.Is(unicode.Cf, before)
	case r == '\ufe0e' || r == '\ufe0f': // text or emoji
		return unicode.Is(unicode.Variation_Selector, before)
	case 0x80 <= r && r < 0xa0, r == '\u2028', r == '\u2029', r == '\u2800':
		return true
	}
	return unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func (d *decoder) tool(at, plugin string, t *Tool) {
	if !isName(t.Name) {
		d.add(at+"/name", "expected a name of [a-z][a-z0-9_]*, found %q", t.Name)
	} else if n := AgentName(plugin, t.Name); len(n) > MaxAgentName {
		d.add(at+"/name", "agents would see %q, %d characters, and at most %d are allowed: shorten the plugin's or the tool's name", n, len(n), MaxAgentName)
	}

	d.visible(at+"/title", t.Title)
	d.description(at+"/description", t.Description)
	d.schema(at+"/input_schema", t.InputSchema, true)
	if t.OutputSchema != nil {
		d.schema(at+"/output_schema", t.OutputSchema, false)
	}

	oneOf(d, at+"/approval", t.Approval, ApprovalAuto, ApprovalRequired)
	oneOf(d, at+"/deferrable", t.Deferrable, DeferAutomatic, DeferNever)
	oneOf(d, at+"/hints/concurrency", t.Hints.Concurrency, Parallel, Serial)
	if t.Hints.Readonly && t.Hints.Destructive != nil && *t.Hints.Destructive {
		d.add(at+"/hints", "readonly and destructive exclude each other")
	}

	d.needs(at+"/needs", &t.Needs)
	d.narration(at+"/narrate", t)
	d.command(at, t)

	limits := reflect.ValueOf(t.Limits)
	for i := range limits.NumField() {
		if n := limits.Field(i).Int(); n < 0 {
			name, _, _ := strings.Cut(limits.Type().Field(i).Tag.Get("json"), ",")
			d.add(at+"/limits/"+name, "expected a positive number, found %d", n)
		}
	}

	for i, e := range t.Examples {
		at := at + "/examples/" + strconv.Itoa(i)
		if found(e.Args) != "an object" {
			d.add(at+"/args", "expected an object, found %s", found(e.Args))
		}
		if (e.Result == nil) == (e.Error == "") {
			d.add(at, "expected either result or error")
		}
	}
}

func oneOf[T ~string](d *decoder, pointer string, got T, allowed ...T) {
	if got != "" && !slices.Contains(allowed, got) {
		d.add(pointer, "expected one of %q, found %q", allowed, got)
	}
}

// countNeeds returns the number of entries in the lists of needs.
func (m *Manifest) countNeeds() int {
	n := m.Needs.count()
	for i := range m.Tools {
		n += m.Tools[i].Needs.count()
	}
	return n
}

func (n *Needs) count() int {
	if n == nil {
		return 0
	}
	return len(n.Files) + len(n.Env) + len(n.Tools) + len(n.HTTP) + len(n.Secrets) + n.Optional.count()
}

func (d *decoder) needs(at string, n *Needs) {
	if o := n.Optional; o != nil && o.Optional != nil {
		d.add(at+"/optional/optional", "optional needs have no optional needs of their own")
	} else if o != nil {
		d.needs(at+"/optional", o)
	}
	for i, f := range n.Files {
		at := at + "/files/" + strconv.Itoa(i)
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || strings.ContainsFunc(f.Path, isControl) {
			d.add(at+"/path", "expected a clean absolute path, such as /work, found %q", f.Path)
		}
		d.visible(at+"/path", f.Path) // operators read it
		if f.Mode == "" {
			d.add(at+"/mode", "expected one of %q, found nothing", []FileMode{FileRead, FileWrite})
		}
		oneOf(d, at+"/mode", f.Mode, FileRead, FileWrite)
	}

	oneOf(d, at+"/session", n.Session, StoreRead, StoreWrite)
	oneOf(d, at+"/kv", n.KV, StoreRead, StoreWrite)

	for i, name := range n.Tools {
		if !IsAgentName(name) && name != EveryTool {
			d.add(at+"/tools/"+strconv.Itoa(i), "expected the name of a tool as agents know it, or * for every tool, found %.80q", name)
		}
	}

	for i, h := range n.HTTP {
		d.httpNeed(at+"/http/"+strconv.Itoa(i), h)
	}

	for i, name := range n.Secrets {
		if !IsSecretName(name) {
			d.add(at+"/secrets/"+strconv.Itoa(i), "expected the name of a secret, of up to %d letters, digits and _ -, found %.80q", MaxSecretName, name)
		}
	}

	for i, e := range n.Env {
		if !isEnvName(e) {
			d.add(at+"/env/"+strconv.Itoa(i), "expected the name of an environment variable, found %q", e)
		}
	}
}

// Bounds on the needs that a plugin asks about at once. They are read while its call cannot be
// stopped.
const (
	maxAsked     = 16       // needs, with each entry of a list counted
	maxAskedText = 16 << 10 // bytes
)

// DecodeNeeds reads the request of the operation "granted".
func DecodeNeeds(data []byte) (Needs, error) {
	if len(data) > maxAskedText {
		return Needs{}, fmt.Errorf("expected at most %d bytes, found %d", maxAskedText, len(data))
	}
	var n Needs
	if problems := decodeStrict(data, &n); len(problems) > 0 {
		return Needs{}, errors.New(problems[0].String())
	}

	d := &decoder{}
	d.needs("", &n)
	if n.Optional != nil {
		d.add("/optional", "ask for these needs as those of the request")
	}
	if c := n.count(); c > maxAsked {
		d.add("", "expected at most %d needs, found %d", maxAsked, c)
	}
	if len(d.problems) > 0 {
		return Needs{}, errors.New(d.problems[0].String())
	}
	return n, nil
}

// httpNeed checks the form of a URL and of methods. Anything else that cannot be
// granted is reported by the host.
func (d *decoder) httpNeed(at string, h HTTPNeed) {
	scheme, rest, _ := strings.Cut(h.URL, "://")
	host, _, slash := strings.Cut(rest, "/")
	if scheme != "https" && scheme != "http" || host == "" || !slash || strings.ContainsFunc(h.URL, unfitForURL) {
		d.add(at+"/url", "expected https://HOST/PATH, such as https://api.example.com/v1/*, found %q", h.URL)
	}
	for i, m := range h.Methods {
		if m != "*" && (m == "" || !consists(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-")) {
			d.add(at+"/methods/"+strconv.Itoa(i), "expected a method in upper case such as GET, or *, found %q", m)
		}
	}
}

func unfitForURL(r rune) bool { return r <= ' ' || isControl(r) || strings.ContainsRune(`@?#\`, r) }

// closedWorld finds tools whose hints contradict the needs of their plugin or of its
// other tools: they all share its grants.
func (d *decoder) closedWorld(m *Manifest) {
	http := func(n Needs) bool { return len(n.HTTP) > 0 || len(n.Opt().HTTP) > 0 }
	open := http(m.Needs) || slices.ContainsFunc(m.Tools, func(t Tool) bool { return http(t.Needs) })
	for i, t := range m.Tools {
		if w := t.Hints.OpenWorld; w != nil && !*w && open {
			d.add("/tools/"+strconv.Itoa(i)+"/hints/open_world", "false, but the plugin needs http: every tool of it may reach the network")
		}
	}
}

// schema checks the requirements of clients and model APIs on a tool's schema: an
// object at the root without the keywords that some APIs refuse. Only compiling it
// shows whether it is a valid JSON Schema without remote references.
func (d *decoder) schema(at string, raw json.RawMessage, input bool) {
	if len(raw) > MaxSchema {
		d.add(at, "expected at most %d bytes, found %d", MaxSchema, len(raw))
		return
	}

	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil || root == nil {
		d.add(at, "expected an object, found %s", found(raw))
		return
	}

	d.visibleIn(at, root)
	draft, named := root["$schema"].(string)
	if named && strings.TrimSuffix(draft, "#") != "https://json-schema.org/draft/2020-12/schema" {
		d.add(at+"/$schema", "expected JSON Schema 2020-12, found %q", draft)
	}
	if !input {
		return
	}

	if root["type"] != "object" {
		d.add(at+"/type", `expected "object": arguments are passed by name`)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf", "not", "if", "enum", "$ref"} {
		if _, ok := root[key]; ok {
			d.add(at+"/"+key, "not allowed at the root: some model APIs refuse it")
		}
	}
	properties, _ := root["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !isArgument(name) {
			d.add(at+"/properties/"+escape(name), "expected a name of 1 to %d letters, digits and _ . -, found %.80q: some model APIs refuse others", maxProperty, name)
		}
	}
}

// maxProperty bounds the name of an argument, in bytes, as model APIs do.
const maxProperty = 64

// isArgument reports whether s is a valid name of an argument.
func isArgument(s string) bool {
	return s != "" && len(s) <= maxProperty && consists(s, letters+digits+"_.-")
}

// visibleIn is like visible, but for all texts in a JSON value.
func (d *decoder) visibleIn(at string, value any) {
	switch value := value.(type) {
	case string:
		d.visible(at, value)
	case []any:
		for i, item := range value {
			d.visibleIn(at+"/"+strconv.Itoa(i), item)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			d.visible(at+"/"+escape(name), name)
			d.visibleIn(at+"/"+escape(name), value[name])
		}
	}
}
