package background

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/output"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`{"path":"a","n":1}`:                        `{"path":"a","n":1}`,
		`{"api_key":"x"}`:                           `{"api_key":"<redacted>"}`,
		`{"API-Key":"x","ApiKey":"x"}`:              `{"API-Key":"<redacted>","ApiKey":"<redacted>"}`,
		`{"auth":"x","Authorization":"x"}`:          `{"auth":"<redacted>","Authorization":"<redacted>"}`,
		`{"author":"x","tokens":3}`:                 `{"author":"x","tokens":3}`,
		`{"access_token":{"a":1}}`:                  `{"access_token":"<redacted>"}`,
		`{"a":[{"b":{"client-secret":"x"}}]}`:       `{"a":[{"b":{"client-secret":"<redacted>"}}]}`,
		`{"db_password":1,"credentials":[1]}`:       `{"db_password":"<redacted>","credentials":"<redacted>"}`,
		`{"ssh_private_key":"x","Set-Cookie":"x"}`:  `{"ssh_private_key":"<redacted>","Set-Cookie":"<redacted>"}`,
		`{"n":12345678901234567890,"html":"<a&b>"}`: `{"n":12345678901234567890,"html":"<a&b>"}`,
		`"text"`:                     `"text"`,
		`{"password":"hunter2"`:      "<unprintable>",
		`{"a":1} {"password":"x"}`:   "<unprintable>",
		`password=hunter2`:           "<unprintable>",
		``:                           "<unprintable>",
		strings.Repeat("[", 100_000): "<unprintable>",
	} {
		require.Equal(t, want, Redact(json.RawMessage(in)), in)
	}
	long := Redact(json.RawMessage(`{"a":"` + strings.Repeat("ä", 300) + `"}`))
	require.Equal(t, `{"a":"`+strings.Repeat("ä", 199)+`…"}`, long)
	all := Redact(json.RawMessage(`[` + strings.Repeat(`"0123456789",`, 100) + `1]`))
	require.Equal(t, 500, utf8.RuneCountInString(all))
	deep := Redact(json.RawMessage(strings.Repeat(`{"a":[`, 4000) + `{"token":[1,{}]},true,false,null,1e2` + strings.Repeat(`]}`, 4000)))
	require.Equal(t, output.Clip(strings.Repeat(`{"a":[`, 4000), 500), deep)
	require.Equal(t, `[{"token":"<redacted>"},true,false,null,1e2,{},[]]`, Redact(json.RawMessage(`[ {"token" : [1,{}]}, true,false,null,1e2, {}, []]`)))
}

// Large arguments are not decoded into a tree, which would take many times their size
// in memory.
func TestRedactReadsNoFurther(t *testing.T) {
	args := json.RawMessage(`[0` + strings.Repeat(",0", 1<<20) + `]`)
	require.Less(t, testing.AllocsPerRun(1, func() { Redact(args) }), 10_000.0)
}
