package egress

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestMasker(t *testing.T) {
	var m Masker
	require.True(t, m.Empty())
	require.Equal(t, "abcdef", m.String("abcdef"))

	m.Add("short", "abc")
	require.True(t, m.Empty(), "too short to be masked")

	m.Add("one", "abcdef")
	m.Add("two", "abcdefgh")
	m.Add("one", "abcdef")
	require.Equal(t, "[secret two] [secret one]x [secret one]", m.String("abcdefgh abcdefx abcdef"))
	require.Equal(t, "[secret one]", m.String(hex.EncodeToString([]byte("abcdef"))))

	m.Add("three", "secret") // a word of the mark
	require.Equal(t, "[secret one] [secret three]", m.String("abcdef secret"))

	clean := []byte("nothing here")
	require.Same(t, &clean[0], &m.Bytes(clean)[0], "no copy")

	h := http.Header{"X-Abcdef-1": {"x"}, "X-B": {"y abcdef", "z"}}
	m.header(h)
	require.Equal(t, http.Header{"X-B": {"y [secret one]", "z"}}, h)
}

// FuzzMasker puts a value in the middle of others, encodes all of it, and looks for
// what is left of the value.
func FuzzMasker(f *testing.F) {
	f.Add("a", "s3cr3t/v+lue<&>\"q\"=é", "bc")
	f.Add("", "0123456789", "")
	f.Add("xy", "ÿÿÿÿÿÿ???>>>", "{")
	f.Fuzz(func(t *testing.T, before, value, after string) {
		if len(value) < 12 || len(value) > 1000 || !utf8.ValidString(before+value+after) || strings.Count(value, value[:1]) == len(value) {
			return
		}
		if strings.Contains("[secret key]", value) || strings.Contains(before+after, value) {
			return
		}

		var m Masker
		m.Add("key", value)
		all := before + value + after
		quoted, err := json.Marshal(all)
		require.NoError(t, err)
		for _, text := range []string{
			all, string(quoted), html.EscapeString(all), url.QueryEscape(all), url.PathEscape(all), hex.EncodeToString([]byte(all)),
			base64.StdEncoding.EncodeToString([]byte(all)), base64.RawURLEncoding.EncodeToString([]byte(all)),
		} {
			require.Contains(t, m.String(text), "[secret key]", text)
		}
	})
}
