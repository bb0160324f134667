package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/vault"
	"github.com/toolhost/toolhost/server/wire"
)

// documentedSchema holds the parts of a schema of the document from which code is
// generated.
type documentedSchema struct {
	Type       string
	Properties map[string]documentedSchema
	Required   []string
	Enum       []string
	Constants  []string `json:"x-enum-varnames"`
	OneOf      []any
	AnyOf      []any

	Minimum, Maximum                         *int
	MinLength, MaxLength, MinItems, MaxItems *int
}

// documented holds the parts of the document from which code is generated.
type documented struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct {
			Name, In string
			Schema   documentedSchema
		}
	}
	Components map[string]map[string]json.RawMessage
	schemas    map[string]documentedSchema
}

func readDocument(t *testing.T) (d documented) {
	require.NoError(t, json.Unmarshal(httpapi.Document(), &d))
	d.schemas = map[string]documentedSchema{}
	for name, text := range d.Components["schemas"] {
		var s documentedSchema
		require.NoError(t, json.Unmarshal(text, &s), name)
		d.schemas[name] = s
	}
	return d
}

// folded returns a name in the form in which generators compare names.
func folded(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// TestDocumentedNames: no two things get one name from the generators of clients. They put all
// components into one namespace, whatever kind they are of, with types of operations, and those
// for Go also with constructors.
func TestDocumentedNames(t *testing.T) {
	d := readDocument(t)
	names := map[string]string{}
	add := func(name, of string) {
		t.Helper()
		require.Empty(t, names[folded(name)], "%s of %s", name, of)
		names[folded(name)] = of
	}

	for _, kind := range []string{"schemas", "parameters", "responses"} {
		for name := range d.Components[kind] {
			add(name, kind+"/"+name)
		}
	}
	for name := range d.schemas {
		add("New"+name, "the constructor of "+name)
		add("Nullable"+name, "the optional "+name)
	}
	for _, operations := range d.Paths {
		for _, op := range operations {
			for _, suffix := range []string{"Request", "Response", "Params", "JSONBody", "JSONRequestBody"} {
				add(op.OperationID+suffix, "the operation "+op.OperationID)
			}
		}
	}
}

// TestDocumentedConstants: no two values of enumerations get one constant. In Go they are all
// in one package.
func TestDocumentedConstants(t *testing.T) {
	d, constants := readDocument(t), map[string]string{}
	for name, s := range d.schemas {
		if s.Constants == nil {
			s.Constants = s.Enum
		}
		require.Len(t, s.Constants, len(s.Enum), name)
		for _, c := range s.Constants {
			require.Empty(t, constants[folded(c)], "%s of %s", c, name)
			constants[folded(c)] = name
		}
	}
}

// TestDocumentedAlternatives: a schema has fields or alternatives. Generators make a type of
// either, and one without its fields of both.
func TestDocumentedAlternatives(t *testing.T) {
	for name, s := range readDocument(t).schemas {
		require.True(t, len(s.Properties) == 0 || len(s.OneOf)+len(s.AnyOf) == 0, name)
	}
}

// TestDocumentedRuns: a run has an id. One that a dry run would start has none, and is of a
// schema of its own.
func TestDocumentedRuns(t *testing.T) {
	d := readDocument(t)
	require.Contains(t, d.schemas["Run"].Required, "task_id")
	planned := d.schemas["PlannedRun"]
	require.Contains(t, planned.Required, "dry_run")
	require.NotContains(t, planned.Properties, "task_id")
	for name := range planned.Properties {
		if name != "dry_run" {
			require.Contains(t, d.schemas["Run"].Properties, name)
		}
	}
}

// TestDocumentedParameters: the server takes a parameter at its documented bounds, and refuses
// one beyond.
func TestDocumentedParameters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, tried := serve(t, httpapi.Config{}, "echo"), 0
		id := "bg_" + strings.Repeat("a", 26)
		fill := strings.NewReplacer("{run}", id, "{plugin}", "echo", "{tool}", "echo", "{key}", "k", "{schedule}", "sc_"+strings.Repeat("a", 26))

		for path, operations := range readDocument(t).Paths {
			for _, p := range operations["get"].Parameters {
				if p.In != "query" {
					continue
				}
				query := func(values ...string) string {
					all := url.Values{p.Name: values}
					if path == "/v1/runs" && p.Name == "tail" { // only with id
						all.Set("id", id)
					}
					return f.refusedField("GET", fill.Replace(path)+"?"+all.Encode(), "")
				}
				for _, b := range boundsOf(p.Schema) {
					require.NotEqual(t, p.Name, query(b.inside...), "%s %v", path, b.inside)
					require.Equal(t, p.Name, query(b.beyond...), "%s %v", path, b.beyond)
					tried++
				}
			}
		}
		require.Greater(t, tried, 20)
	})
}

// A bound holds the values of a parameter at a bound, and beyond it.
type bound struct{ inside, beyond []string }

func boundsOf(s documentedSchema) (bounds []bound) {
	numbers := func(inside, beyond int) {
		bounds = append(bounds, bound{[]string{fmt.Sprint(inside)}, []string{fmt.Sprint(beyond)}})
	}
	if s.Minimum != nil {
		numbers(*s.Minimum, *s.Minimum-1)
	}
	if s.Maximum != nil {
		numbers(*s.Maximum, *s.Maximum+1)
	}
	if n := s.MaxLength; n != nil {
		bounds = append(bounds, bound{[]string{strings.Repeat("ä", *n)}, []string{strings.Repeat("ä", *n+1)}})
	}
	if n := s.MinLength; n != nil {
		bounds = append(bounds, bound{[]string{strings.Repeat("ä", *n)}, []string{strings.Repeat("ä", *n-1)}})
	}
	return bounds
}

// refusedField sends a request, and returns the field that the server finds invalid, if any.
func (f *fixture) refusedField(method, path, body string, headers ...string) string {
	f.t.Helper()
	resp, text := f.do(method, path, body, headers...)
	var p wire.Problem
	if resp.StatusCode >= 300 {
		require.NoError(f.t, json.Unmarshal([]byte(text), &p), text)
	}
	return p.Field
}

// TestDocumentedBounds: the server takes fields of bodies at their documented bounds, and
// refuses those beyond.
func TestDocumentedBounds(t *testing.T) {
	schemas := readDocument(t).schemas
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		text := func(n int) any { return strings.Repeat("t", n) }
		number := func(n int) any { return n }
		cron := func(n int) any { // a list of minutes of that length
			return strings.Repeat("0,", (n-9)/2) + strings.Repeat("1", 2-n%2) + " 3 * * *"
		}
		ids := func(n int) any { return slices.Repeat([]string{"bg_" + strings.Repeat("a", 26)}, n) }

		for _, test := range []struct {
			schema, field, path string
			body                object
			value               func(n int) any
		}{
			{"Spawn", "timeout_seconds", "/v1/runs", object{"tool": "echo"}, number},
			{"Spawn", "title", "/v1/runs", object{"tool": "echo"}, text},
			{"Spawn", "locale", "/v1/runs", object{"tool": "echo"}, text},
			{"ScheduleRequest", "timeout_seconds", "/v1/schedules", object{"tool": "echo", "cron_expression": "0 3 * * *"}, number},
			{"ScheduleRequest", "title", "/v1/schedules", object{"tool": "echo", "cron_expression": "0 3 * * *"}, text},
			{"ScheduleRequest", "locale", "/v1/schedules", object{"tool": "echo", "cron_expression": "0 3 * * *"}, text},
			{"ScheduleRequest", "parent", "/v1/schedules", object{"tool": "echo", "cron_expression": "0 3 * * *"}, text},
			{"ScheduleRequest", "cron_expression", "/v1/schedules", object{"tool": "echo"}, cron},
			{"Call", "locale", "/v1/calls", object{"tool": "echo"}, text},
			{"Seen", "task_ids", "/v1/notices/ack", object{}, ids},
		} {
			s := schemas[test.schema].Properties[test.field]
			i := slices.IndexFunc([]*int{s.Maximum, s.MaxLength, s.MaxItems}, func(n *int) bool { return n != nil })
			require.GreaterOrEqual(t, i, 0, "%s.%s has no bound", test.schema, test.field)
			most := *[]*int{s.Maximum, s.MaxLength, s.MaxItems}[i]

			for n, refused := range map[int]string{most: "", most + 1: test.field} {
				body := maps.Clone(test.body)
				body[test.field] = test.value(n)
				data, err := json.Marshal(body)
				require.NoError(t, err)
				require.Equal(t, refused, f.refusedField("POST", test.path, string(data), wire.DryRunHeader, "true"), "%s.%s of %d", test.schema, test.field, n)
			}
		}
	})
	require.Equal(t, vault.MaxValue, *schemas["SecretValue"].Properties["value"].MaxLength)
}
