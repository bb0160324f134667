package egress

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestMasker(t *testing.T) {
	var m masker
	require.True(t, m.empty())
	require.Equal(t, "abcdef", m.string("abcdef"))
	m.add("short", "abc")
	require.True(t, m.empty(), "too short to be masked")

	m.add("one", "abcdef")
	m.add("two", "abcdefgh")
	m.add("one", "abcdef")
	require.Equal(t, "[secret two] [secret one]x [secret one]", m.string("abcdefgh abcdefx abcdef"))
	require.Equal(t, "[secret one][secret one]", m.string("abcdefabcdef"))
	m.add("three", "secret") // a word of the mark
	require.Equal(t, "[secret one] [secret three]", m.string("abcdef secret"))
	for _, text := range []string{"", "a", "%", `\`, "&", "%6", `\u`, "&#", "abcde", "abcdE%", `abcde\u006`} {
		require.Equal(t, text, m.string(text))
	}

	m.add("four", "ſſſ") // shorter in capitals
	require.Equal(t, "[secret four] SSS", m.string("ſſſ SSS"))

	clean := []byte("nothing here")
	masked, err := m.within(t.Context(), clean, 100)
	require.NoError(t, err)
	require.Same(t, &clean[0], &masked[0], "no copy")
	h := http.Header{"X-Abcdef-1": {"x"}, "X-B": {"y abcdef", "z"}}
	m.header(h)
	require.Equal(t, http.Header{"X-B": {"y [secret one]", "z"}}, h)
}

// maskedValues need an escape in each of the forms.
var maskedValues = []string{"s3cr3t-Token/+Value.42", "dG9rZW4tMTIzNDU2Nzg5=&<x>", "pässwört!~1/x", `k3y/of+Ana&"her" house`, "Ünï€ 𝄞 key", `100%25 sure\n`, `\\server\"a"`}

// escaping writes each character that is not in safe with a function.
func escaping(safe string, escape func(r rune) string) func(string) string {
	return func(value string) string {
		var b strings.Builder
		for _, r := range value {
			if strings.ContainsRune(safe, r) {
				b.WriteRune(r)
			} else {
				b.WriteString(escape(r))
			}
		}
		return b.String()
	}
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

func percent(r rune) string {
	return strings.ToUpper(regexp.MustCompile("..").ReplaceAllString(hex.EncodeToString([]byte(string(r))), "%$0"))
}

func inJSON(r rune) (s string) {
	for _, u := range utf16.Encode([]rune{r}) {
		s += fmt.Sprintf(`\u%04x`, u)
	}
	return s
}

func decimal(r rune) string     { return fmt.Sprintf("&#%d;", r) }
func hexadecimal(r rune) string { return fmt.Sprintf("&#x%X;", r) }

// named writes a reference by name, if there is one.
func named(r rune) string {
	for _, packed := range references {
		if rune(packed&0xff) == r {
			return "&" + nameOf(packed) + ";"
		}
	}
	return string(r)
}

// nameOf returns the name of an element of references.
func nameOf(packed uint64) string {
	return strings.TrimLeft(string(binary.BigEndian.AppendUint64(nil, packed)[:maxName]), "\x00")
}

func quoted(value string) string {
	text, _ := json.Marshal(value)
	return string(text[1 : len(text)-1])
}

// upper writes a form in upper case, and its escapes too.
func upper(form func(string) string) func(string) string {
	return func(value string) string { return strings.ToUpper(form(value)) }
}

func encoded(enc *base64.Encoding, before, after string) func(string) string {
	return func(value string) string { return enc.EncodeToString([]byte(before + value + after)) }
}

// broken breaks a base64 text into lines, with the break inside of the value.
func broken(size int, end string) func(string) string {
	return func(value string) string {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", size*3/4-5) + value + " after"))
		return regexp.MustCompile(fmt.Sprintf(".{%d}", size)).ReplaceAllString(text, "$0"+end)
	}
}

func then(a func(string) string, b func(string) string) func(string) string {
	return func(value string) string { return b(a(value)) }
}

// maskedForms are the forms that servers give a value. The table in docs/contract.md names
// them.
var maskedForms = []struct {
	name string
	form func(value string) string
}{
	{"as it is", func(v string) string { return v }},
	{"upper case", strings.ToUpper},
	{"lower case", strings.ToLower},

	{"percent, Go's query", url.QueryEscape},
	{"percent, Go's path", url.PathEscape},
	{"percent, encodeURIComponent", escaping(letters+"-_.!~*'()", percent)},
	{"percent, encodeURI", escaping(letters+"-_.!~*'();/?:@&=+$,#", percent)},
	{"percent, Python's quote", escaping(letters+"-_.~/", percent)},
	{"percent, Java's URLEncoder", func(v string) string { return strings.ReplaceAll(escaping(letters+"-_.* ", percent)(v), " ", "+") }},
	{"percent, rawurlencode", escaping(letters+"-_.~", percent)},
	{"percent, every character", escaping("", percent)},
	{"percent, lower case", then(url.QueryEscape, lowerEscapes)},
	{"percent, all in upper case", upper(url.QueryEscape)},
	{"percent, all in lower case", then(url.QueryEscape, strings.ToLower)},

	{"JSON, Go", quoted},
	{"JSON, only what must be", func(v string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) }},
	{"JSON, Python", func(v string) string {
		return escaping(letters+"-_.~/+=&<>!$%'() ", inJSON)(v)
	}},
	{"JSON, PHP", func(v string) string {
		return strings.ReplaceAll(escaping(letters+"-_.~/+=&<>!$%'() ", inJSON)(v), "/", `\/`)
	}},
	{"JSON, Gson", escaping(letters+"-_.~/+!$%() ", inJSON)},
	{"JSON, every character", escaping("", inJSON)},
	{"JSON, upper case", upper(escaping("", inJSON))},
	{"JavaScript, \\x", escaping(letters+"äöÜï€𝄞", func(r rune) string { return fmt.Sprintf(`\x%02x`, r) })},
	{"JavaScript, \\x of every character", escaping("", func(r rune) string {
		if r > 0xff {
			return inJSON(r)
		}
		return fmt.Sprintf(`\x%02x`, r)
	})},
	{"percent, Latin-1", escaping(letters, func(r rune) string {
		if r > 0xff {
			return percent(r)
		}
		return fmt.Sprintf("%%%02X", r)
	})},
	{"Python's bytes", escaping(letters, func(r rune) string { return strings.ReplaceAll(percent(r), "%", `\x`) })},
	{"a backslash before signs", escaping(letters+"äöÜï€𝄞", func(r rune) string { return `\` + string(r) })},

	{"HTML, Go", html.EscapeString},
	{"HTML, Mustache", escaping(letters+"-_.~+!$%() \\äöÜï€𝄞", hexadecimal)},
	{"HTML, names", escaping(letters, named)},
	{"HTML, decimal", escaping("", decimal)},
	{"HTML, decimal without a semicolon", escaping("", func(r rune) string { return strings.TrimSuffix(decimal(r), ";") })},
	{"HTML, decimal with zeros", escaping("", func(r rune) string { return fmt.Sprintf("&#%07d;", r) })},
	{"HTML, decimal of 16 digits", escaping("", func(r rune) string { return fmt.Sprintf("&#%016d;", r) })},
	{"HTML, hexadecimal of 16 digits", escaping("", func(r rune) string { return fmt.Sprintf("&#x%016X;", r) })},
	{"HTML, hexadecimal", escaping("", hexadecimal)},
	{"HTML, hexadecimal in lower case", then(escaping("", hexadecimal), strings.ToLower)},
	{"HTML, upper case", upper(html.EscapeString)},
	{"HTML, names in upper case", upper(escaping(letters, named))},
	{"an escape here and there", func(v string) string {
		r := []rune(v)
		return percent(r[0]) + string(r[1:3]) + decimal(r[3]) + string(r[4:])
	}},

	{"base64", encoded(base64.StdEncoding, "", "")},
	{"base64, raw", encoded(base64.RawStdEncoding, "", "")},
	{"base64 of URLs", encoded(base64.URLEncoding, "", "")},
	{"base64 of URLs, raw", encoded(base64.RawURLEncoding, "", "")},
	{"base64, second alignment", encoded(base64.StdEncoding, "a", "bc")},
	{"base64, third alignment", encoded(base64.StdEncoding, "ab", "c")},
	{"base64 of URLs, second alignment", encoded(base64.URLEncoding, "abc?", ">>>")},
	{"base64 of URLs, third alignment", encoded(base64.RawURLEncoding, "ab???", "")},
	{"base64, Basic", encoded(base64.StdEncoding, "ana:", "")},
	{"base64, lines of 76", broken(76, "\r\n")},
	{"base64, lines of 64", broken(64, "\n")},
	{"base64, indented lines", broken(64, "\n    ")},
	{"base64, lines in JSON", broken(76, `\r\n`)},
	{"base64, lines in a query", broken(76, "%0D%0A")},
	{"base64, short lines of escapes", then(broken(8, "\r\n      "), escaping("", inJSON))},
	{"base64, in JSON of PHP", then(encoded(base64.StdEncoding, "", "???"), func(s string) string { return strings.ReplaceAll(s, "/", `\/`) })},
	{"base64, in a query", then(encoded(base64.StdEncoding, "", "???"), url.QueryEscape)},
	{"hexadecimal", func(v string) string { return hex.EncodeToString([]byte(v)) }},
	{"hexadecimal, upper case", func(v string) string { return strings.ToUpper(hex.EncodeToString([]byte(v))) }},
	{"hexadecimal, in a text", func(v string) string { return "0x" + hex.EncodeToString([]byte("<"+v+">")) }},
}

// TestMaskedForms: each value is masked in each form, between other texts, and at both ends.
func TestMaskedForms(t *testing.T) {
	var m masker
	for i, value := range maskedValues {
		m.add(fmt.Sprint(i), value)
	}
	for _, f := range maskedForms {
		t.Run(f.name, func(t *testing.T) {
			for i, value := range maskedValues {
				form, mark := f.form(value), fmt.Sprintf("[secret %d]", i)
				for _, around := range [][2]string{{"", ""}, {"a ", " z"}, {`{"key":"`, `"}`}, {"%", "&"}, {`"\n`, `\"`}} {
					masked := m.string(around[0] + form + around[1])
					require.Contains(t, masked, mark, form)
					if !strings.Contains(f.name, ",") || strings.HasPrefix(f.name, "percent") || strings.HasPrefix(f.name, "HTML") {
						require.Equal(t, around[0]+mark+around[1], masked, form)
					}
					require.NotContains(t, masked, form)
				}
			}
		})
	}
}

// TestMaskedTogether: a form is found whatever the other forms of secrets begin with.
func TestMaskedTogether(t *testing.T) {
	var m masker
	m.add("latin1", "p\xe4ssw&%rt!~1/x")
	m.add("utf8", "pässwört!~1/x")
	m.add("space", "V+0123456789") // whose base64 begins with V too

	require.Equal(t, "[secret utf8] [secret latin1]", m.string(`p%E4ssw%F6rt%21%7E1%2Fx p%E4ssw%26%25rt%21%7E1%2Fx`))
	text := base64.StdEncoding.EncodeToString([]byte("V+0123456789"))
	require.Equal(t, "[secret space]", m.string(text[:1]+"\n    "+text[1:]))
}

// unmaskedForms are some in which a value is not found: what SECURITY.md says.
var unmaskedForms = map[string]func(value string) string{
	"a list of bytes": func(v string) string { return fmt.Sprint([]byte(v)) },
	"a list of characters": func(v string) string {
		return strings.Join(strings.Split(v, ""), ",")
	},
	"hexadecimal with colons": func(v string) string { return strings.ReplaceAll(fmt.Sprintf("% x", v), " ", ":") },
	"base32":                  func(v string) string { return base32.StdEncoding.EncodeToString([]byte(v)) },
	"base64 twice":            then(encoded(base64.StdEncoding, "", ""), encoded(base64.StdEncoding, "", "")),
	"base64 in upper case":    upper(encoded(base64.StdEncoding, "", "")),
	"UTF-16":                  func(v string) string { return strings.Join(strings.Split(v, ""), "\x00") },
	"reversed": func(v string) string {
		b := []byte(v)
		for i := range len(b) / 2 {
			b[i], b[len(b)-1-i] = b[len(b)-1-i], b[i]
		}
		return string(b)
	},
	"escaped twice": then(escaping("", percent), url.QueryEscape),
	"cut":           func(v string) string { return v[:len(v)-1] + "…" },
}

func TestUnmaskedForms(t *testing.T) {
	for name, form := range unmaskedForms {
		for i, value := range maskedValues[:4] {
			var m masker
			m.add("key", value)
			require.False(t, m.has(form(value)), "%s %d", name, i)
		}
	}
}

// TestMaskedEnds: at the end of a response the beginning of a value is masked.
func TestMaskedEnds(t *testing.T) {
	const value = "s3cr3t-Token/+Value.42"
	var m masker
	m.add("key", value)
	for text, want := range map[string]string{
		"Bearer s3cr3t-Token/+": "Bearer [secret key]", "Bearer s3cr3t-T": "Bearer [secret key]", "Bearer s3cr3t-": "Bearer s3cr3t-",
		"s3cr3t-Token/+.": "s3cr3t-Token/+.", "s3cr3t-Token%2": "[secret key]", "s3cr3t-Token%": "[secret key]", `s3cr3t-Token\u002`: "[secret key]", "s3cr3t-Token&#x2": "[secret key]",
		base64.StdEncoding.EncodeToString([]byte(value))[:11]: "[secret key]", hex.EncodeToString([]byte(value))[:15]: hex.EncodeToString([]byte(value))[:15],
		hex.EncodeToString([]byte(value))[:16]: "[secret key]", "s3cr3t-Tok s3cr3t-Tok": "s3cr3t-Tok [secret key]",
	} {
		require.Equal(t, want, m.string(text))
	}
	for _, rest := range []string{`%s"}`, "&hellip; docs", `\n"}`, `\u00e4"`, "%zz", `\ud834x`, "&#x;", "&#4x", "&amp;", "&abcdefghi", `\x4g`, "%2x"} {
		require.Equal(t, "s3cr3t-T"+rest, m.string("s3cr3t-T"+rest), "no beginning of an escape")
	}
	for _, rest := range []string{"%", "%6", `\`, `\x`, `\X4`, `\u`, `\u006`, `\uD834`, `\ud834\`, `\ud834\uDd1`, "&", "&#", "&#x", "&#X6", "&#06", "&aacut"} {
		require.Equal(t, "[secret key]", m.string("s3cr3t-T"+rest), "the beginning of an escape: %s", rest)
	}
}

// TestMaskedNeighbors: the character before base64, which has bits of the value too, is masked
// with it, but no part of an escape is.
func TestMaskedNeighbors(t *testing.T) {
	var m masker
	m.add("key", "s3cr3t-Token/+Value.42")
	text := base64.StdEncoding.EncodeToString([]byte("a=s3cr3t-Token/+Value.42!!!"))
	for _, escape := range []string{`\/`, "%2F", `\u002f`, `\x2F`, "&#47", "&#x2f"} {
		require.Equal(t, "YT"+escape+"[secret key]ISEh", m.string("YT"+escape+text[3:]))
	}
	require.Equal(t, "YT[secret key]ISEh", m.string(text))
}

// TestReferences: the names are those of HTML.
func TestReferences(t *testing.T) {
	for _, packed := range references {
		name, r := nameOf(packed), rune(packed&0xff)
		if html.UnescapeString("&"+name+";") != string(r) { // some have a capital
			require.Equal(t, string(r), strings.ToLower(html.UnescapeString("&"+strings.ToUpper(name[:1])+name[1:]+";")), name)
		}
	}
}

// FuzzMasker puts a value in the middle of others, escapes or encodes all of it, and looks
// for what is left of the value.
func FuzzMasker(f *testing.F) {
	f.Add("a", "s3cr3t/v+lue<&>\"q\"=é", "bc")
	f.Add("", "0123456789", "")
	f.Add("xy", "ÿÿÿÿÿÿ???>>>", "{")
	f.Fuzz(func(t *testing.T, before, value, after string) {
		if len(value) < 12 || len(value) > 1000 || !utf8.ValidString(before+value+after) || strings.Contains("[secret key]", value) {
			return
		}
		var m masker
		m.add("key", value)
		all := before + value + after
		for _, text := range []string{
			all, quoted(all), html.EscapeString(all), url.QueryEscape(all), url.PathEscape(all), hex.EncodeToString([]byte(all)),
			base64.StdEncoding.EncodeToString([]byte(all)), base64.RawURLEncoding.EncodeToString([]byte(all)),
		} {
			require.Contains(t, m.string(text), "[secret key]", text)
		}
	})
}

// FuzzUnescape: what is decoded is within the text, and short.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"%41", `\u0041`, `\ud834\udd1e`, `\x41`, `\/`, "&#65;", "&#x1F600;", "&amp;", "&auml;", "%", `\u00`, "&#", `\ud834\u`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 {
			return
		}
		r, size := unescape(text)
		require.True(t, 0 <= size && size <= min(len(text), maxEscape), "%q: %d", text, size)
		require.True(t, -0xff <= r && r <= utf8.MaxRune, "%q: %d", text, r)
	})
}

// lowerEscapes writes the escapes of a URL in lower case.
func lowerEscapes(s string) string {
	return regexp.MustCompile("%[0-9A-F]{2}").ReplaceAllStringFunc(s, strings.ToLower)
}
