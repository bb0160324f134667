package egress

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Masker replaces secrets by their names. It finds a value as it is and in the forms
// that programs and servers give it: base64 in both alphabets and at each alignment,
// hexadecimal, and escaped for URLs, JSON and HTML. It cannot find a value that was
// split or transformed in another way.
//
// The zero value masks nothing. A Masker is safe for concurrent use.
type Masker struct {
	mu    sync.RWMutex
	names map[string]string // by value
	forms []form
	first *[256][]form // by their first bytes, the longest first
}

type form struct {
	text, lower string
	bytes       []byte
	name, mark  string
}

// Add masks value from now on, as "[secret NAME]". A value shorter than [MinSecret]
// is not masked.
func (m *Masker) Add(name, value string) {
	if len(value) < MinSecret {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.names[value]; known {
		return
	}
	if m.names == nil {
		m.names, m.first = map[string]string{}, new([256][]form)
	}
	m.names[value] = name

	for _, text := range formsOf(value) {
		f := form{text, strings.ToLower(text), []byte(text), name, "[secret " + name + "]"}
		m.forms = append(m.forms, f)
		same := append(m.first[text[0]], f)
		slices.SortStableFunc(same, func(a, b form) int { return len(b.text) - len(a.text) })
		m.first[text[0]] = same
	}
}

// AddSecret adds the value of a secret, and what its place makes of it.
func (m *Masker) AddSecret(name string, s Secret) {
	m.Add(name, s.Value)
	if s.Place.Basic != "" {
		m.Add(name, s.basic())
	}
}

// Masked is a value that is masked.
type Masked struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// All returns the values that are masked, sorted.
func (m *Masker) All() (all []Masked) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, value := range slices.Sorted(maps.Keys(m.names)) {
		all = append(all, Masked{m.names[value], []byte(value)})
	}
	return all
}

// Empty reports whether m has nothing to mask.
func (m *Masker) Empty() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.forms) == 0
}

// String returns s with every secret masked.
func (m *Masker) String(s string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if slices.ContainsFunc(m.forms, func(f form) bool { return strings.Contains(s, f.text) }) {
		return m.replace(s)
	}
	return s
}

// Bytes returns b with every secret masked: b itself if it has no secret.
func (m *Masker) Bytes(b []byte) []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if slices.ContainsFunc(m.forms, func(f form) bool { return bytes.Contains(b, f.bytes) }) {
		return []byte(m.replace(string(b)))
	}
	return b
}

// replace masks in one pass, the longest form first, so that no mark is masked again
// and no form hides a longer one.
func (m *Masker) replace(s string) string {
	forms := slices.Clone(m.forms)
	slices.SortStableFunc(forms, func(a, b form) int { return len(b.text) - len(a.text) })
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		pairs = append(pairs, f.text, f.mark)
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// Stream masks a text that comes in pieces. The last held bytes of text are not in what
// it returns, because they may be the beginning of a secret: put them in front of the
// next piece. They are fewer than the longest form of a secret has.
func (m *Masker) Stream(text []byte) (masked []byte, held int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.first == nil {
		return text, 0
	}

	done := 0 // bytes of text that are in masked
	for at := 0; at < len(text); {
		f, begins := match(m.first[text[at]], text[at:])
		switch {
		case begins:
			return append(masked, text[done:at]...), len(text) - at
		case f == nil:
			at++
		default:
			masked = append(append(masked, text[done:at]...), f.mark...)
			at += len(f.bytes)
			done = at
		}
	}

	if done == 0 {
		return text, 0
	}
	return append(masked, text[done:]...), 0
}

// match returns the longest form at the start of a text. It begins one if the text ends
// before a longer one does.
func match(forms []form, text []byte) (_ *form, begins bool) {
	for i, f := range forms {
		switch {
		case len(text) < len(f.bytes):
			if bytes.HasPrefix(f.bytes, text) {
				return nil, true
			}
		case bytes.HasPrefix(text, f.bytes):
			return &forms[i], false
		}
	}
	return nil, false
}

// In returns the name of a secret that is in s, or nothing.
func (m *Masker) In(s string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if i := slices.IndexFunc(m.forms, func(f form) bool { return strings.Contains(s, f.text) }); i >= 0 {
		return m.forms[i].name
	}
	return ""
}

// Within is In for a text that others may decode, such as a URL: it looks below up to
// three layers of URL escapes too.
func (m *Masker) Within(s string) string {
	if m.Empty() {
		return ""
	}

	for range 4 {
		name := m.In(s)
		if name == "" && strings.Contains(s, "+") { // a space, in a query
			spaced := strings.ReplaceAll(s, "+", " ")
			name = cmp.Or(m.In(spaced), m.In(decodeOnce(spaced)))
		}
		if name != "" || !strings.Contains(s, "%") {
			return name
		}
		s = decodeOnce(s)
	}
	return ""
}

// header masks values, and removes fields whose name has a secret.
func (m *Masker) header(h http.Header) {
	if m.Empty() {
		return
	}
	for name, values := range h {
		if m.inName(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = m.String(v)
		}
	}
}

// inName ignores case, because names of headers change theirs on the way.
func (m *Masker) inName(name string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name = strings.ToLower(name)
	return slices.ContainsFunc(m.forms, func(f form) bool { return strings.Contains(name, f.lower) })
}

// formsOf returns a value in each form that is masked, without duplicates.
func formsOf(value string) []string {
	raw := []byte(value)
	forms := []string{value, hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw))}

	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, enc.EncodeToString(raw), enc.WithPadding(base64.NoPadding).EncodeToString(raw))
		for offset := range 3 {
			forms = append(forms, aligned(enc, raw, offset))
		}
	}

	var all strings.Builder
	for _, c := range raw {
		writeEscape(&all, c)
	}
	forms = append(forms, all.String(), lowerEscapes(all.String()))
	if strings.ContainsFunc(value, func(r rune) bool { return r >= 0x80 || !unreserved(byte(r)) }) {
		forms = append(forms, escapedForms(value)...)
	}

	slices.Sort(forms)
	return slices.Compact(forms)
}

// escapedForms are those in which only some characters change.
func escapedForms(value string) []string {
	query, path := url.QueryEscape(value), url.PathEscape(value)
	forms := []string{query, path, url.QueryEscape(query), url.QueryEscape(path), lowerEscapes(query), lowerEscapes(path), html.EscapeString(value)}

	quoted, err := json.Marshal(value)
	if err != nil {
		return forms
	}
	inner := string(quoted[1 : len(quoted)-1])
	plain := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(inner)
	again, _ := json.Marshal(inner) // JSON in a string of JSON
	return append(forms, inner, strings.ReplaceAll(inner, "/", `\/`), plain, strings.ReplaceAll(plain, "/", `\/`), string(again[1:len(again)-1]))
}

// aligned returns the part of the encoding that does not depend on what is before and
// after the value, for a value that starts offset bytes after a multiple of three.
func aligned(enc *base64.Encoding, value []byte, offset int) string {
	text := enc.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, offset), value...))
	if offset > 0 {
		text = text[offset+1:]
	}
	if (offset+len(value))%3 != 0 {
		text = text[:len(text)-1]
	}
	return text
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}
