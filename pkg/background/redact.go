package background

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"unicode"
)

const (
	redacted        = "<redacted>"
	unprintable     = "<unprintable>"
	maxRedactString = 200
	maxRedacted     = 500
)

// loggedArgs are arguments in a line of the log: a line that is not written does
// not read them, and they may have megabytes.
type loggedArgs json.RawMessage

// LogValue implements [slog.LogValuer].
func (a loggedArgs) LogValue() slog.Value { return slog.StringValue(a.String()) }

// String is there so that nothing else prints them as they are either.
func (a loggedArgs) String() string { return Redact(json.RawMessage(a)) }

// Redact returns JSON arguments in a form fit for a log line: the value of
// every key that names a secret, at any depth, is "<redacted>"; strings are
// cut to 200 characters and the whole to 500. What is no JSON is
// "<unprintable>", never itself.
//
// Keys are compared without regard to case and to anything but letters and
// digits. Secret are api_key, auth, authorization, and keys that end in token,
// secret, password, apikey, credential, credentials, privatekey or cookie.
func Redact(args json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return unprintable
	}
	if _, err := dec.Token(); err != io.EOF {
		return unprintable
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(redactValue(v)); err != nil {
		return unprintable
	}
	return clip(strings.TrimSuffix(out.String(), "\n"), maxRedacted)
}

func redactValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if secretKey(key) {
				v[key] = redacted
			} else {
				v[key] = redactValue(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = redactValue(v[i])
		}
	case string:
		return clip(v, maxRedactString)
	}
	return v
}

func secretKey(key string) bool {
	key = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, key)
	if key == "auth" || key == "authorization" {
		return true
	}
	for _, end := range [...]string{"token", "secret", "password", "apikey", "credential", "credentials", "privatekey", "cookie"} {
		if strings.HasSuffix(key, end) {
			return true
		}
	}
	return false
}
