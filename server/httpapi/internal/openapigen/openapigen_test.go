package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/httpapi"
)

// The document that is served is the one that the code makes.
func TestDocumentIsUpToDate(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	want, err := generate(root)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(place)))
	require.NoError(t, err)
	if string(want) != string(got) {
		t.Fatalf("%s is not what the code makes: run go generate ./server/httpapi", place)
	}
	require.JSONEq(t, string(got), string(httpapi.Document()))
}

// Each operation has a name of its own, a tag and a description.
func TestOperations(t *testing.T) {
	var doc document
	require.NoError(t, json.Unmarshal(httpapi.Document(), &doc))
	seen := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			require.Regexp(t, `^[a-z]+[A-Z][A-Za-z]+$`, op.OperationID, "%s %s", method, path)
			require.False(t, seen[op.OperationID], op.OperationID)
			seen[op.OperationID] = true
			require.NotEmpty(t, op.Summary, op.OperationID)
			require.NotEmpty(t, op.Description, op.OperationID)
			for _, tagName := range op.Tags {
				require.Contains(t, names(doc.Tags), tagName, op.OperationID)
			}
			for _, p := range op.Parameters {
				require.True(t, p.Ref != "" || p.Name != "" && p.Description != "" && p.Schema != nil, "%s: %+v", op.OperationID, p)
			}
		}
	}
	require.Len(t, seen, len(httpapi.Routes()))
}

func names(tags []tag) (all []string) {
	for _, t := range tags {
		all = append(all, t.Name)
	}
	return all
}

// What the code says is what the schema says.
func TestSchemas(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	for name, test := range map[string]struct {
		of   reflect.Type
		sent bool
		want string // a part of the component
	}{
		"fields and what is required": {reflect.TypeFor[httpapi.Health](), false, `{"type":"object","required":["status"],"properties":{"status":{"type":"string"},"version":{"type":"string"}},
			"description":"Health is the answer of GET /healthz and /readyz."}`},
		"a request takes nothing else": {reflect.TypeFor[httpapi.Stop](), true, `{"type":"object","additionalProperties":false,"properties":{
			"force":{"type":"boolean","description":"end it at once, without a chance to give way"},
			"reason":{"type":"string","description":"kept with the run, cut to 200 characters"}},"description":"A Stop is the body of POST /v1/runs/{run}/stop."}`},
		"a list with bounds": {reflect.TypeFor[httpapi.Seen](), true, `{"type":"object","additionalProperties":false,"required":["task_ids"],"properties":{
			"task_ids":{"type":"array","items":{"type":"string","pattern":"^bg_[a-z2-7]{26}$"},"minItems":1,"maxItems":1000,"description":"of the runs"}},"description":"Seen is the body of POST /v1/notices/ack."}`},
		"bytes, and names as JSON has them": {reflect.TypeFor[httpapi.Output](), false, `{"type":"object","required":["attempt","offset"],"properties":{
			"attempt":{"type":"integer","description":"of the run; another one has a log of its own"},
			"offset":{"type":"integer","format":"int64","description":"of the first byte in the whole log"},
			"omitted":{"type":"integer","format":"int64","description":"bytes before it that were not kept"},
			"text":{"type":"string"},
			"base64":{"type":"string","contentEncoding":"base64","description":"in place of ` + "`text`" + `, if it is no UTF-8"}},
			"description":"Output is the data of an event \"output\" of GET /v1/runs/{run}/output."}`},
		"an enumeration": {reflect.TypeFor[abi.Limit](), false, `{"type":"string","enum":["fuel","memory","time","output"],"description":"Limit names what a call ran out of."}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchemas(&source{root: root})
			ref, err := s.of(test.of, test.sent)
			require.NoError(t, err)
			require.Equal(t, "#/components/schemas/"+test.of.Name(), ref.Ref)
			got, err := json.Marshal(s.components[test.of.Name()])
			require.NoError(t, err)
			require.JSONEq(t, test.want, string(got))
		})
	}
}

// An object of any fields says so: a generator that takes it for one of none
// makes a client that can give a tool no arguments.
func TestSchemaOfArguments(t *testing.T) {
	var doc document
	require.NoError(t, json.Unmarshal(httpapi.Document(), &doc))
	for _, name := range []string{"Call", "Spawn", "NewSchedule"} {
		args, err := json.Marshal(doc.Components.Schemas[name].Properties["args"])
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"object","additionalProperties":true,"description":"absent is {}"}`, string(args), name)
	}
}

// Embedded structs are fields of the one that embeds them, types that another
// package has too are told apart, maps and times are what they are in JSON.
func TestSchemasOfStats(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	s := newSchemas(&source{root: root})
	_, err = s.of(reflect.TypeFor[httpapi.Stats](), false)
	require.NoError(t, err)
	require.Equal(t, []string{"runs", "host", "storage", "open_answers"}, s.components["Stats"].PropertyOrder)
	require.Equal(t, "#/components/schemas/BackgroundStats", s.components["Stats"].Properties["runs"].Ref)
	failed := s.components["BackgroundStats"].Properties["failed"]
	require.Equal(t, "#/components/schemas/ErrorKind", failed.PropertyNames.Ref)
	require.Equal(t, "integer", failed.AdditionalProperties.Type)
	require.Contains(t, s.components["HostStats"].Properties, "running", "host.Stats embeds Counts")
	require.NotContains(t, s.components, "Counts")
}

// What cannot be described is an error that says where.
func TestNoSchema(t *testing.T) {
	root, err := moduleRoot()
	require.NoError(t, err)
	s := newSchemas(&source{root: root})
	_, err = s.of(reflect.TypeFor[chan int](), false)
	require.ErrorContains(t, err, "no schema is known for chan int")
	_, err = s.of(reflect.TypeFor[http.Cookie](), false)
	require.ErrorContains(t, err, "not of this module")
	_, err = s.of(reflect.TypeFor[httpapi.Stop](), true)
	require.NoError(t, err)
	_, err = s.of(reflect.TypeFor[httpapi.Stop](), false)
	require.ErrorContains(t, err, "both sent and answered")
	require.ErrorContains(t, refine(&jsonschema.Schema{}, "minLenth=1"), "unknown keyword")
	require.Error(t, refine(&jsonschema.Schema{}, "minLength=one"))
}

// A route nothing more is known of than its method and its path is in the
// document too.
func TestNamelessRoute(t *testing.T) {
	for path, want := range map[string]string{
		"/.well-known/oauth-protected-resource":     "getWellKnownOauthProtectedResource",
		"/.well-known/oauth-protected-resource/mcp": "getWellKnownOauthProtectedResourceMcp",
	} {
		r := httpapi.Route{Method: "GET", Path: path}
		require.Equal(t, want, operationID(&r))
		require.Equal(t, "server", tagOf(path))
	}
}
