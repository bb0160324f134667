package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server/wire"
)

// difference returns the changes in a new configuration. The settings in changed take effect
// at a reload, and are compared with the current configuration. Those in later need a
// restart, and are compared with the configuration from startup.
func (r *reloader) difference(next *loadedConfig) (changed, later []wire.SettingChange) {
	return settingChanges(r.now(), next, live), settingChanges(r.config, next, restart)
}

// settingChanges returns the changes to settings that take effect at the given time. It
// leaves out values that may be secret. A setting that is shown in the same way, such as a
// default that is now written out, has not changed.
func settingChanges(before, next *loadedConfig, when effect) []wire.SettingChange {
	out := []wire.SettingChange{}
	old, now := before.inForce(), next.inForce()
	all := maps.Clone(old)
	maps.Copy(all, now)

	for _, key := range slices.Sorted(maps.Keys(all)) {
		if all[key].effect != when || reflect.DeepEqual(old[key].field(), now[key].field()) {
			continue
		}
		change := wire.SettingChange{Key: key}
		if !mayBeSecret(key) {
			change.Old, change.New = shownValue(key, old[key]), shownValue(key, now[key])
			if change.Old == change.New {
				continue
			}
		}
		out = append(out, change)
	}
	return out
}

// field returns the value of the setting's field, or nil if the setting is in a mapping that
// does not have it.
func (v value) field() any {
	if v.to == nil {
		return nil
	}
	return reflect.ValueOf(v.to).Elem().Interface()
}

// mayBeSecret reports whether a key's value may contain a token, a password or a secret.
func mayBeSecret(key string) bool {
	inside := func(group string, names ...string) bool {
		rest, ok := strings.CutPrefix(key, group)
		return ok && slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(rest, "."+name) })
	}
	return slices.Contains(tokens, key) || key == "engine" || key == "egress.proxy" ||
		inside("grants.", "env", "config", "http") || inside("secrets.", "command")
}

// maxShownValue is the number of characters of a value that are shown.
const maxShownValue = 200

// shownValue returns a value in the form that operators see.
func shownValue(key string, v value) string {
	if text := showValues(map[string]value{key: v})[0].text(); text != "" {
		return short(text, maxShownValue)
	}
	return "none"
}
