package typed

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMarshal(t *testing.T) {
	type inner struct {
		Text string `json:"text"`
	}
	type outer struct {
		inner
		List  []any             `json:"list,omitempty"`
		Names map[string]inner  `json:"names,omitempty"`
		To    *inner            `json:"to,omitempty"`
		Bytes []byte            `json:"bytes,omitempty"`
		Raw   json.RawMessage   `json:"raw,omitempty"`
		When  time.Time         `json:"when,omitzero"`
		Left  string            `json:"-"`
		Keys  map[string]string `json:"keys,omitempty"`
	}
	for name, c := range map[string]struct {
		value     any
		want, err string
	}{
		"HTML":                  {"<&>", `"<&>"`, ""},
		"a replacement of ours": {"a\ufffdb", "\"a\ufffdb\"", ""},
		"an escape in raw JSON": {outer{Raw: json.RawMessage(`"\ufffd"`)}, `{"text":"","raw":"\ufffd"}`, ""},
		"an escaped escape":     {`\ufffd`, `"\\ufffd"`, ""},
		"bytes":                 {outer{Bytes: []byte{0xff}}, `{"text":"","bytes":"/w=="}`, ""},
		"a field left out":      {outer{Left: "\xff", Raw: json.RawMessage(`"\ufffd"`)}, `{"text":"","raw":"\ufffd"}`, ""},
		"a text":                {"a\xffb", "", "/: expected UTF-8"},
		"an embedded field":     {outer{inner: inner{"\xff"}}, "", "/text: expected UTF-8"},
		"in a list":             {outer{List: []any{1, map[string]any{"a": "\xc3"}}}, "", "/list/1/a: expected UTF-8"},
		"in a map":              {outer{Names: map[string]inner{"n": {"\xff"}}}, "", "/names/n/text: expected UTF-8"},
		"behind a pointer":      {&outer{To: &inner{"\xff"}}, "", "/to/text: expected UTF-8"},
		"a key":                 {outer{Keys: map[string]string{"\xff": ""}}, "", `the name "\xff" in /keys: expected UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Marshal(c.value)
			if c.err != "" {
				require.ErrorIs(t, err, ErrNotUTF8)
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}
