package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/webui"
)

// operatorPage provides what the operators' page shows of the configuration.
type operatorPage struct{ *app }

// settings returns all settings for the operators' page. For variables and settings
// of plugins, it returns only the names: their values may be secret.
func (p operatorPage) settings() (out []webui.Setting) {
	all := p.now().inForce()
	for key, v := range p.config.inForce() {
		if v.effect == restart {
			all[key] = v
		}
	}

	for key, v := range all {
		if names := reflect.ValueOf(v.raw); names.Kind() == reflect.Map && mayBeSecret(key) {
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

// lacking returns a function for the operators' page. The function returns the lines
// that grant a plugin the needs that it lacks, and where to add them.
func (p operatorPage) lacking(s *server.Service) func(plugin string) (addTo, lines string) {
	return func(plugin string) (addTo, lines string) {
		c := p.now()
		for _, loaded := range s.Plugins() {
			if loaded.Manifest.Name == plugin {
				lines = c.lacking(loaded)
			}
		}
		return c.addTo(), lines
	}
}
