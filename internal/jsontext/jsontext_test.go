package jsontext

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	for document, want := range map[string][]string{
		``:        nil,
		`[1]`:     nil,
		`"{"`:     nil,
		`null`:    nil,
		`{}`:      nil,
		` { } `:   nil,
		`{"a":1}`: {"a", "1"},
		` {"a" : [ {"x":"}"} , 2 ] , "\u0062\"" : {"c":{"d":","}} } `: {"a", `[ {"x":"}"} , 2 ]`, `b"`, `{"c":{"d":","}}`},
		`{"a":"\\","a":"\"","A":null}`:                                {"a", `"\\"`, "a", `"\""`, "A", "null"},
	} {
		var got []string
		for name, value := range Members([]byte(document)) {
			got = append(got, name, string(value))
		}
		require.Equal(t, want, got, document)
	}
	for range Members([]byte(`{"a":1,"b":2}`)) {
		break // and nothing is told that nobody asks for
	}
}

func TestNames(t *testing.T) {
	for document, want := range map[string]int{
		`1`: 0, `":"`: 0, `{}`: 0, `{"a":1}`: 1, `{":":"\":\\","a":[{"b":{"b":1,"b":2}}]}`: 5,
	} {
		require.Equal(t, want, Names([]byte(document)), document)
	}
}

// FuzzMembers: an object without a name that is there twice has the members that
// encoding/json finds.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"}"}],"c":"\""}`, `{}`, ` {"a" : {} , "b":[[]]} `, `{"a":1,"a":2}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil {
			want = nil
		}
		var names []string
		got := map[string]json.RawMessage{}
		for name, value := range Members(data) {
			names = append(names, name)
			got[name] = value
		}
		require.Len(t, got, len(want))
		for name, value := range want {
			require.Equal(t, string(value), string(got[name]))
		}
	})
}
