package httpapi_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// renamed are schemas whose types have names that others have, or that code which is generated from
// others has.
var renamed = map[string]string{"background.Stats": "BackgroundStats", "host.Stats": "HostStats", "wire.NewSchedule": "ScheduleRequest"}

// The document has each endpoint and no other, and each field of each type that
// is on the wire.
func TestDocumentIsComplete(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(httpapi.Document(), &doc))

	types, operations := map[string]reflect.Type{}, 0
	for _, typ := range []reflect.Type{reflect.TypeFor[wire.Problem](), reflect.TypeFor[wire.Event](), reflect.TypeFor[wire.Output]()} {
		collect(types, typ)
	}
	for _, r := range httpapi.Routes() {
		require.NotEmpty(t, r.Name, "%s %s", r.Method, r.Path)
		collect(types, r.Request)
		collect(types, r.Response)
	}
	for _, methods := range doc.Paths {
		operations += len(methods)
	}
	require.Equal(t, len(httpapi.Routes()), operations)

	for name, typ := range types {
		schema, ok := doc.Components.Schemas[name]
		require.True(t, ok, "the document has no %s", name)
		fields := fieldsOf(typ)
		if typ == reflect.TypeFor[wire.Run]() { // the document has PlannedRun for dry runs
			fields = slices.DeleteFunc(fields, func(name string) bool { return name == "dry_run" })
		}
		require.Equal(t, slices.Sorted(maps.Keys(schema.Properties)), fields, name)
	}
}

// collect adds the structs of this module that a value of a type is made of.
func collect(types map[string]reflect.Type, t reflect.Type) {
	if t == nil {
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(types, t.Elem())
	case reflect.Struct:
		name := t.Name()
		if other, ok := renamed[t.String()]; ok {
			name = other
		}
		if _, done := types[name]; done || !strings.HasPrefix(t.PkgPath(), "github.com/toolhost/") {
			return
		}
		types[name] = t
		for f := range t.Fields() {
			if f.Anonymous {
				for inner := range f.Type.Fields() {
					collect(types, inner.Type)
				}
				continue
			}
			collect(types, f.Type)
		}
	}
}

// fieldsOf are the JSON names of a struct's fields, sorted.
func fieldsOf(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
