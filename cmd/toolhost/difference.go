package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server/wire"
)

// difference returns what is new in a configuration. changed is compared with the current
// one, and takes effect at a reload; later is compared with that of the start, and needs
// a restart.
func (r *reloader) difference(next *loaded) (changed, later []wire.SettingChange) {
	changed, later = []wire.SettingChange{}, []wire.SettingChange{}
	now := r.now()
	keys := map[string]effect{}
	for _, c := range []*loaded{now, next, r.config} {
		for key, v := range c.values {
			keys[key] = v.effect
		}
	}

	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case keys[key] == live && now.differs(next, key):
			changed = append(changed, now.change(next, key))
		case keys[key] == restart && r.config.differs(next, key):
			later = append(later, r.config.change(next, key))
		}
	}
	return changed, later
}

// field returns the value of a key; nil if it is in a mapping and not set.
func (c *loaded) field(key string) any {
	if s, ok := c.setting(key); ok {
		return reflect.ValueOf(s.to).Elem().Interface()
	}
	return nil
}

// setting returns the table row of a key.
func (c *loaded) setting(key string) (setting, bool) {
	if v, ok := c.values[key]; ok {
		return v.setting, true
	}
	i := slices.IndexFunc(c.table, func(s setting) bool { return s.key == key && s.kind.each == nil })
	if i < 0 {
		return setting{}, false
	}
	return c.table[i], true
}

// differs reports whether a key has another value in another configuration, or is written
// differently: 0 may be the default.
func (c *loaded) differs(next *loaded, key string) bool {
	return !reflect.DeepEqual(c.field(key), next.field(key)) && (mayBeSecret(key) || c.shown(key) != next.shown(key))
}

// change returns the change of a key, without values that may be secret.
func (c *loaded) change(next *loaded, key string) wire.SettingChange {
	if mayBeSecret(key) {
		return wire.SettingChange{Key: key}
	}
	return wire.SettingChange{Key: key, Old: c.shown(key), New: next.shown(key)}
}

// mayBeSecret reports whether the value of a key may contain a token, a password or a
// secret.
func mayBeSecret(key string) bool {
	inside := func(group string, names ...string) bool {
		rest, ok := strings.CutPrefix(key, group)
		return ok && slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(rest, "."+name) })
	}
	return slices.Contains(tokens, key) || key == "engine" || key == "egress.proxy" ||
		inside("grants.", "env", "config", "http") || inside("secrets.", "command")
}

// maxShownValue is how many characters of a value are shown.
const maxShownValue = 200

// shown returns the value of a key as shown to operators.
func (c *loaded) shown(key string) string {
	v, set := c.values[key]
	if s, ok := c.setting(key); ok && !set {
		v.raw = s.byDefault()
	}
	if text := showValues(map[string]value{key: v})[0].text(); text != "" {
		return short(text, maxShownValue)
	}
	return "none"
}
