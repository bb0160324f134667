package egress

import (
	"bytes"
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

// TestWithin: escapes that others decode hide nothing.
func TestWithin(t *testing.T) {
	var m Masker
	require.Empty(t, m.Within("a"))
	const value = `k3y/of+Ana&"her" house`
	m.AddSecret("key", Secret{Value: value, Place: Place{Basic: "ana"}})

	var partly strings.Builder // every third character
	for i := range len(value) {
		if i%3 == 0 {
			writeEscape(&partly, value[i])
		} else {
			partly.WriteByte(value[i])
		}
	}
	query := url.QueryEscape(value)
	for _, s := range []string{
		value, query, url.PathEscape(value), partly.String(), url.QueryEscape(partly.String()), url.QueryEscape(url.QueryEscape(partly.String())),
		strings.Replace(query, "k", "%6b", 1), url.QueryEscape(strings.Replace(query, "k", "%6B", 1)), "Basic " + Secret{Value: value, Place: Place{Basic: "ana"}}.basic(),
	} {
		require.Equal(t, "key", m.Within("/a?b="+s+"&c"), s)
	}
	for _, s := range []string{"", "%", "%zz", "100%25+1", value[1:], strings.ToUpper(value)} {
		require.Empty(t, m.Within(s), s)
	}
}

// FuzzStream: whatever the pieces are, what is passed on is the text as it is masked in
// one go, and no more is held back than a secret has room for.
func FuzzStream(f *testing.F) {
	f.Add("a", "0123456789", "b", uint8(3))
	f.Add("01234", "012345678901234567890", "012345", uint8(1))
	f.Add("", `k3y/of+Ana&"her" house`, "k3y", uint8(7))
	f.Fuzz(func(t *testing.T, before, value, after string, size uint8) {
		if len(value) < MinSecret || len(value) > 1000 {
			return
		}
		var m Masker
		m.Add("one", value)
		m.Add("two", value+"0123")
		longest := 0
		for _, form := range m.forms {
			longest = max(longest, len(form.text))
		}

		all := before + value + after + url.QueryEscape(value) + "x" + base64.StdEncoding.EncodeToString([]byte(before+value+"0123"))
		var out, held []byte
		for rest := []byte(all); len(rest) > 0; {
			n := min(len(rest), int(size)+1)
			text := append(bytes.Clone(held), rest[:n]...)
			masked, left := m.Stream(text)
			out, held, rest = append(out, masked...), text[len(text)-left:], rest[n:]
			require.Less(t, len(held), longest)
		}
		out = append(out, m.Bytes(held)...)
		require.Equal(t, m.String(all), string(out))
	})
}
