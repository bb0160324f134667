package plugins

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/lock"
)

// within returns the part of a grant that the lock accepts. The rest is reported as a
// problem of the plugin.
func (l *loader) within(p *Plugin) Grant {
	if l.lock == nil || p.locked == nil {
		return p.granted
	}

	var accepted Grant
	var more []string
	dir := filepath.Dir(l.cfg.Lock.File)
	for _, part := range grantParts(p.granted) {
		text, wide := grantText(part, dir), grantText(wider(part), dir)
		if slices.Contains(p.locked.Grants, text) || slices.Contains(p.locked.Grants, wide) {
			addPart(&accepted, part)
		} else {
			more = append(more, text)
		}
	}
	if more != nil {
		p.notes = append(p.notes, Problem{p.File, &LockError{p.Manifest.Name, []string{lock.MoreGranted(more) + ", which is not in force"}}})
	}
	return accepted
}

// grantTexts returns the parts of a grant as written in a lock, sorted.
func grantTexts(g Grant, dir string) (texts []string) {
	for _, part := range grantParts(g) {
		texts = append(texts, grantText(part, dir))
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// widerTexts maps the text of each part of a grant to the text of a grant that contains it.
func widerTexts(g Grant, dir string) map[string]string {
	texts := map[string]string{}
	for _, part := range grantParts(g) {
		text := grantText(part, dir)
		if wide := grantText(wider(part), dir); wide != text {
			texts[text] = wide
		}
	}
	return texts
}

// wider returns a read-only part with write access added: whoever accepted that has
// accepted the part.
func wider(part Grant) Grant {
	switch {
	case part.Session == abi.StoreRead:
		part.Session = abi.StoreWrite
	case part.KV.Mode == abi.StoreRead:
		part.KV.Mode = abi.StoreWrite
	case len(part.Files) > 0:
		one := part.Files[0]
		one.Mode = abi.FileWrite
		part.Files = []host.Mount{one}
	}
	return part
}

// grantParts splits a grant into grants of one thing each: a field, an element of a list, or
// a key of a map.
func grantParts(g Grant) (parts []Grant) {
	add := func(i int, value reflect.Value) {
		var part Grant
		reflect.ValueOf(&part).Elem().Field(i).Set(value)
		parts = append(parts, part)
	}

	v := reflect.ValueOf(g)
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.IsZero():
		case f.Kind() == reflect.Slice:
			for n := range f.Len() {
				add(i, f.Slice3(n, n+1, n+1))
			}
		case f.Kind() == reflect.Map:
			for _, key := range f.MapKeys() {
				one := reflect.MakeMap(f.Type())
				one.SetMapIndex(key, f.MapIndex(key))
				add(i, one)
			}
		default:
			add(i, f)
		}
	}
	return parts
}

// addPart adds a part to a grant.
func addPart(to *Grant, part Grant) {
	v, p := reflect.ValueOf(to).Elem(), reflect.ValueOf(part)
	for i := range v.NumField() {
		switch f, add := v.Field(i), p.Field(i); {
		case add.IsZero():
		case add.Kind() == reflect.Slice:
			f.Set(reflect.AppendSlice(f, add))
		case add.Kind() == reflect.Map && !f.IsNil():
			for _, key := range add.MapKeys() {
				f.SetMapIndex(key, add.MapIndex(key))
			}
		default:
			f.Set(add)
		}
	}
}

// grantText returns a part of a grant as written in a lock: the text of toolhost list, and
// the rest of the configuration without values that may be secret. Folders inside dir are
// relative to it, so that the lock is the same on every machine.
func grantText(part Grant, dir string) string {
	text := strings.Join(part.Names(), ", ")
	switch {
	case part.KV != (host.KV{}):
		text += detail("scope", cmp.Or(part.KV.Scope, "")) + detail("keys", part.KV.Keys) + detail("bytes", part.KV.Bytes)
	case len(part.HTTP) > 0:
		r := part.HTTP[0]
		text += detail("max_body", r.MaxBody)
		if r.Private {
			text += ", private"
		}
	case len(part.Files) > 0:
		text += ": " + relative(part.Files[0].Dir, dir)
	case len(part.Config) > 0:
		for key := range part.Config {
			text = "config " + key
		}
	}
	return text
}

func detail(name string, value any) string {
	if reflect.ValueOf(value).IsZero() {
		return ""
	}
	return fmt.Sprintf(", %s %v", name, value)
}

// relative returns a folder relative to dir if it is inside dir, otherwise its whole path.
func relative(folder, dir string) string {
	whole, err := filepath.Abs(folder)
	from, wrong := filepath.Abs(dir)
	if err != nil || wrong != nil {
		return filepath.ToSlash(folder)
	}
	if rel, err := filepath.Rel(from, whole); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(whole)
}
