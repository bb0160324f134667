package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
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
	mu       sync.RWMutex
	names    map[string]string // by value
	forms    []form
	replacer *strings.Replacer
}

type form struct{ text, mark string }

// Add masks value from now on, as "[secret NAME]". A value shorter than [MinSecret]
// is not masked.
func (m *Masker) Add(name, value string) {
	if len(value) < MinSecret {
		return
	}

	m.mu.RLock()
	_, known := m.names[value]
	m.mu.RUnlock()
	if known {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[string]string{}
	}
	m.names[value] = name

	mark := fmt.Sprintf("[secret %s]", name)
	for _, text := range formsOf(value) {
		m.forms = append(m.forms, form{text, mark})
	}
	slices.SortStableFunc(m.forms, func(a, b form) int { return len(b.text) - len(a.text) })

	pairs := make([]string, 0, 2*len(m.forms))
	for _, f := range m.forms {
		pairs = append(pairs, f.text, f.mark)
	}
	m.replacer = strings.NewReplacer(pairs...)
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
		return m.replacer.Replace(s)
	}
	return s
}

// Bytes returns b with every secret masked: b itself if there is none in it.
func (m *Masker) Bytes(b []byte) []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if slices.ContainsFunc(m.forms, func(f form) bool { return bytes.Contains(b, []byte(f.text)) }) {
		return []byte(m.replacer.Replace(string(b)))
	}
	return b
}

// Found reports whether s has a secret.
func (m *Masker) Found(s string) bool { return m.String(s) != s }

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
	return slices.ContainsFunc(m.forms, func(f form) bool { return strings.Contains(name, strings.ToLower(f.text)) })
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

	query, path := url.QueryEscape(value), url.PathEscape(value)
	var all strings.Builder
	for _, c := range raw {
		writeEscape(&all, c)
	}
	forms = append(forms, query, path, url.QueryEscape(query), url.QueryEscape(path), all.String())
	forms = append(forms, lowerEscapes(query), lowerEscapes(path), lowerEscapes(all.String()))

	forms = append(forms, html.EscapeString(value))
	if quoted, err := json.Marshal(value); err == nil {
		inner := string(quoted[1 : len(quoted)-1])
		forms = append(forms, inner, strings.ReplaceAll(inner, "/", `\/`))
		plain := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(inner)
		again, _ := json.Marshal(inner)
		forms = append(forms, plain, strings.ReplaceAll(plain, "/", `\/`), string(again[1:len(again)-1]))
	}

	slices.Sort(forms)
	return slices.Compact(forms)
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
