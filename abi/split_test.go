package abi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var objects = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a" : "b" , "c":[1,{"d":"]"}],"e":{"f":","}, "g":null}`, `{"a":"\"\\","b":true}`, `{"a":1,"a":2}`,
	`{"a\n":1}`, `{"a":"ä","ä":"\u00e4"}`, "{\"a\":\"\xff\"}", `{"a":}`, `{"a":1,}`, `{"a"`, `{"a":"`, `{"a":"\`, `{"a":1}}`, `[]`, `1`, ``, `{"a":1 2}`, `{,}`,
}

func FuzzSplit(f *testing.F) {
	for _, object := range objects {
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		got, ok := split(object)
		var want values
		if json.Unmarshal(object, &want) != nil {
			return // it need not be noticed
		}
		if ok {
			require.Equal(t, want, got)
		}
		for name, value := range want {
			if ok && len(value) > 0 && value[0] == '"' {
				var text string
				require.NoError(t, json.Unmarshal(value, &text))
				require.Equal(t, text, textOf(got[name]))
			}
		}
	})
}

func TestSplit(t *testing.T) {
	for _, object := range objects[:6] {
		_, ok := split([]byte(object))
		require.True(t, ok, object)
	}
	for _, object := range []string{`{"a\n":1}`, `{"a"`, `{"a":"`, `{"a":"\`, `{"a":1}}`, `[]`, `1`, ``, `{,}`, `{"a":1 2}`} {
		_, ok := split([]byte(object))
		require.False(t, ok, object)
	}
}

func BenchmarkExpandTemplate(b *testing.B) {
	args, _ := json.Marshal(map[string]string{"text": strings.Repeat("a text of words ", 1<<16)})
	b.SetBytes(int64(len(args)))
	for b.Loop() {
		_, _ = ExpandTemplate("{text}", args)
	}
}
