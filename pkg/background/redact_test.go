package background

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		`{"path":"a","n":1}`:                        `{"n":1,"path":"a"}`,
		`{"api_key":"x"}`:                           `{"api_key":"<redacted>"}`,
		`{"API-Key":"x","ApiKey":"x"}`:              `{"API-Key":"<redacted>","ApiKey":"<redacted>"}`,
		`{"auth":"x","Authorization":"x"}`:          `{"Authorization":"<redacted>","auth":"<redacted>"}`,
		`{"author":"x","tokens":3}`:                 `{"author":"x","tokens":3}`,
		`{"access_token":{"a":1}}`:                  `{"access_token":"<redacted>"}`,
		`{"a":[{"b":{"client-secret":"x"}}]}`:       `{"a":[{"b":{"client-secret":"<redacted>"}}]}`,
		`{"db_password":1,"credentials":[1]}`:       `{"credentials":"<redacted>","db_password":"<redacted>"}`,
		`{"ssh_private_key":"x","Set-Cookie":"x"}`:  `{"Set-Cookie":"<redacted>","ssh_private_key":"<redacted>"}`,
		`{"n":12345678901234567890,"html":"<a&b>"}`: `{"html":"<a&b>","n":12345678901234567890}`,
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
}
