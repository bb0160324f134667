package egress

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// naive finds forms in the simplest way: it compares each form at each position.
type naive []comparedForm

type comparedForm struct {
	*encoding
	text string // folded
}

func newNaive(values ...string) (all naive) {
	add := func(as int, text string) {
		e := &encodings[as]
		all = append(all, comparedForm{e, e.folded(text)})
	}
	for _, v := range values {
		for _, text := range []string{v, strings.ToLower(v), strings.ToUpper(v)} {
			add(asText, text)
		}
		add(asHex, hex.EncodeToString([]byte(v)))
		for offset := range 3 {
			add(asBase64, aligned(v, offset))
		}
	}
	return all
}

func (e *encoding) folded(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = e.fold.to[c]
	}
	return string(b)
}

// end returns the end of the longest form that begins at a position, or 0.
func (n naive) end(text string, start int) (end int) {
	for _, f := range n {
		end = max(end, f.end(text, start))
	}
	return end
}

// end reads each escape in each way.
func (f comparedForm) end(text string, start int) (end int) {
	type state struct{ at, depth, spaces int }
	seen := map[state]bool{}
	var visit func(s state)
	visit = func(s state) {
		if seen[s] {
			return
		}
		seen[s] = true

		rest := text[s.at:]
		if s.depth == len(f.text) {
			end = max(end, s.at)
			return
		}
		if s.depth >= f.least && (rest == "" || len(rest) < maxEscape && beginsEscape.MatchString(rest)) {
			end = len(text)
		}
		if rest == "" {
			return
		}

		read := func(chars string, size int) {
			switch {
			case strings.HasPrefix(f.text[s.depth:], f.folded(chars)):
				visit(state{at: s.at + size, depth: s.depth + len(chars)})
			case f.lines && s.depth > 0 && s.spaces < maxSpaces && strings.Contains(" \t\r\n", chars):
				visit(state{s.at + size, s.depth, s.spaces + 1})
			}
		}
		read(rest[:1], 1)
		r, size := unescape([]byte(rest))
		if size > 0 && r < 0 {
			read(string([]byte{byte(-r)}), size)
		}
		if size > 0 {
			read(string(max(r, -r)), size)
		}
	}
	visit(state{at: start})
	return end
}

// requireSame compares what a masker finds at each position of a text, of at most one piece,
// with what the naive search does.
func requireSame(t *testing.T, values []string, text string) {
	s := maskerOf(values).search([]byte(text))
	s.budget = 1 << 30 // no limit
	var states states
	s.pass(s.text, len(text), &states)

	want := newNaive(values...)
	for start := range len(text) {
		end := 0
		if s.at(start, states.bits[start]) {
			end = s.end
		}
		require.Equal(t, want.end(text, start), end, "%q: %q at %d", values, text, start)
	}
}

// TestSearch compares the search with a naive one, for secrets and texts of few different
// characters, which look like escapes, like each other and like their own continuation.
func TestSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	value := func() (s string) {
		for len(s) < MinSecret+random.IntN(8) {
			s += pick("a", "a", "A", "b", "%", "%25", "%41", "2", "4", `\`, `\\`, "n", "x", "&", "&amp;", "#", ";", "+", " ", "/", "é", "\xe9")
		}
		return s
	}
	for range 300 {
		values := []string{value(), value(), value()}
		values = append(values, values[0]+value(), values[1][:MinSecret]+value(), strings.Repeat(pick("a", `\`, "%25", "ab"), 9))
		requireSame(t, values, randomText(pick, random.IntN, values))
	}
}

// randomText repeats parts of values in random forms.
func randomText(pick func(...string) string, n func(int) int, values []string) (text string) {
	for len(text) < 200 {
		switch form := maskedForms[n(len(maskedForms))].form(pick(values...)); n(5) {
		case 0:
			text += form
		case 1:
			text += form[:n(len(form))]
		case 2:
			text += form[n(len(form)):]
		case 3:
			text += pick("a", "%", `\`, "&", "%25", `\\`, "&#", "\n", " ", "=")
		default:
			for _, r := range form[:n(len(form))] {
				text += pick(string(r), string(r), string(r), percent(r), inJSON(r), decimal(r), named(r), `\`+string(r))
			}
		}
	}
	return text[:min(len(text), piece)]
}

// TestSearchPieces: what is found does not depend on where a piece of the text begins.
func TestSearchPieces(t *testing.T) {
	m := maskerOf(maskedValues)
	for _, f := range maskedForms {
		text := "\t\\u00e4 %25 " + f.form(maskedValues[1]) + " & \n " + f.form(maskedValues[2]) + " % "
		masked := m.string("." + text)
		for n := range piece {
			before := strings.Repeat(" %41", n/4+1)[:n] + "."
			require.Equal(t, before+masked[1:], m.string(before+text), "%s after %d bytes", f.name, n)
		}
	}
}

// FuzzSearch compares the search with a naive one for any secrets and text.
func FuzzSearch(f *testing.F) {
	f.Add("s3cr3t-Token/+Value.42", "s3cr3t-Token/+Value.43", "s3cr3t-Token/+Value.4s3cr3t-Token%2F+Value.42")
	f.Add("aaaaaaaab", "aaaaaaaaab", strings.Repeat("a", 40))
	f.Add(`\\\\\\\\`, `\\\\\\\n`, strings.Repeat(`\`, 30)+"n")
	f.Add("%25%25%25", "%2525252525", strings.Repeat("%25", 12))
	f.Add("p\xe4ssw&%rt!~1/x", "pässwört!~1/x", "p%E4ssw%F6rt%21%7E1%2Fx p%E4ssw%26%25rt%21%7E1%2Fx")
	f.Add("abcdefé", "abcdef\xe9!", "abcdef%E9.")
	f.Add("abcdefgh", "abcdefghij", "YWJjZGVmZ2g=\nYWJjZGVm\n Z2hp\nag==")
	f.Fuzz(func(t *testing.T, one, two, text string) {
		if min(len(one), len(two)) >= MinSecret && len(one)+len(two) <= 100 && len(text) <= 200 {
			requireSame(t, []string{one, two}, text)
		}
	})
}

// TestSearchWork: the steps of a search depend on the size of the text, not on the number of
// secrets, and are limited whatever they are.
func TestSearchWork(t *testing.T) {
	const most = 2 * stepsPerByte
	for _, set := range []struct {
		name    string
		secrets []string
		steps   int // for each byte of a text
	}{
		{"one", manySecrets(1, ""), 4},
		{"hundred", manySecrets(100, ""), 4},
		{"prefix", manySecrets(100, "sk-ant-api03-"), 4},
		{"header", manySecrets(100, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."), 4},
		{"thousand", manySecrets(1000, ""), 8},
		{"letters", []string{strings.Repeat("a", 4000) + "b", strings.Repeat("ab", 2000) + "b"}, most},
		{"escapes", []string{strings.Repeat(`\`, 300) + "b", strings.Repeat("%25", 100) + "b", strings.Repeat("&amp;", 100) + "b"}, most},
	} {
		t.Run(set.name, func(t *testing.T) {
			m := maskerOf(set.secrets)
			for name, pattern := range hostileTexts(set.secrets) {
				s := m.search([]byte(strings.Repeat(pattern, 1+20_000/len(pattern))))
				budget := s.budget
				for range s.places(t.Context()) {
				}
				require.LessOrEqual(t, budget-s.budget, set.steps*len(s.text), name)
			}
		})
	}
}

// TestSearchWithoutBudget: a secret is masked to its end even if no step is left to compare it
// twice, and a shorter secret is its beginning.
func TestSearchWithoutBudget(t *testing.T) {
	const short = "s3cr3r"
	for _, char := range letters { // in any bucket
		long := short + "A" + string(char) + "-and-the-rest"
		m := maskerOf([]string{short, long})
		for _, text := range []string{long, strings.ToUpper(long), base64.StdEncoding.EncodeToString([]byte("." + long + "."))} {
			s := m.search([]byte(text))
			s.budget = 0
			found := slices.Collect(s.places(t.Context()))
			require.Equal(t, slices.Collect(m.search([]byte(text)).places(t.Context())), found, "%s", text)
			require.Len(t, found, 1)
			require.Equal(t, "[secret key1]", found[0].mark)
		}
	}
}

// TestSearchDepth: a search needs no more memory for a long secret in which each character is
// escaped and followed by white space than for the text itself.
func TestSearchDepth(t *testing.T) {
	secret := manySecrets(1, strings.Repeat("secret", 2000))[0]
	text := escaping("", inJSON)(base64.StdEncoding.EncodeToString([]byte(secret)))
	text = strings.ReplaceAll(text, `\u`, strings.Repeat(`\n`, maxSpaces)+`\u`)[2*maxSpaces:]

	defer debug.SetMaxStack(debug.SetMaxStack(256 << 10))
	require.True(t, strings.HasPrefix(maskerOf([]string{secret}).string(text), "[secret key0]"))
}

func maskerOf(values []string) *masker {
	var m masker
	for i, v := range values {
		m.add(fmt.Sprint("key", i), v)
	}
	return &m
}

// manySecrets returns secrets that begin alike.
func manySecrets(n int, prefix string) (all []string) {
	chars := rand.New(rand.NewChaCha8([32]byte{byte(n)}))
	for range n {
		s := []byte(prefix)
		for range 32 {
			s = append(s, letters[chars.IntN(len(letters))])
		}
		all = append(all, string(s))
	}
	return all
}

// hostileTexts are texts that are slow to mask when they are repeated.
func hostileTexts(secrets []string) map[string]string {
	near := func(value string) string { return value[:len(value)-1] + "\x00" }
	first, second := secrets[0], secrets[1%len(secrets)]
	all := map[string]string{
		"plain": `{"name":"value","n":12345,"url":"https://example.com/x?y=z"},`, "percent": "%", "backslash": `\`, "ampersand": "&",
		"escape": "%73", "backslash-n": `\n`, "json": `\u0073`, "json-umlaut": `\u00e4`, "entity": "&#115;", "entity-digits": "&#00000000", "entity-name": "&amp;", "mixed": `%\&`,
		"near": near(first), "near-percent": strings.ReplaceAll(url.QueryEscape(near(first)), "s", "%73"),
		"near-json": strings.ReplaceAll(near(first), "3", `\u0033`), "prefix": first[:2], "prefixes": first[:2] + second[:2], "letters": "a", "near-letters": second[:len(second)-1],
		"base64": base64.StdEncoding.EncodeToString([]byte(near(first))), "base64-random": base64.StdEncoding.EncodeToString(random(3 << 10)), "random": string(random(4 << 10)),
		"hex": hex.EncodeToString([]byte(near(first))), "hex-random": hex.EncodeToString(random(3 << 10)), "lines": "c\n", "spaces": "c" + strings.Repeat(" ", 20), "found": first,
	}
	for _, s := range secrets {
		all["near-all"] += near(s)
		all["near-base64"] += base64.StdEncoding.EncodeToString([]byte(near(s)))
		all["near-escaped"] += escaping("", percent)(near(s))
		all["near-start"] += s[:min(len(s), firstBytes)]
	}
	return all
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	return data
}
