package background

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolhost/toolhost/pkg/background/output"
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
	if !json.Valid(args) {
		return unprintable
	}
	r := redactor{in: json.NewDecoder(bytes.NewReader(args))}
	r.in.UseNumber()
	r.value()
	return output.Clip(r.out.String(), maxRedacted)
}

// A redactor reads valid JSON no further than it is shown: a tree of it all would
// take many times its size.
type redactor struct {
	in  *json.Decoder
	out strings.Builder
}

// full reports whether what follows would be cut off.
func (r *redactor) full() bool { return r.out.Len() > maxRedacted*utf8.UTFMax }

// value writes the next value.
func (r *redactor) value() {
	token, _ := r.in.Token()
	switch token {
	case json.Delim('{'):
		r.members('}', func() {
			key, _ := r.in.Token()
			name, _ := key.(string)
			r.text(name)
			r.out.WriteByte(':')
			if !secretKey(name) {
				r.value()
				return
			}
			r.text(redacted)
			var skipped json.RawMessage
			_ = r.in.Decode(&skipped)
		})
		return
	case json.Delim('['):
		r.members(']', r.value)
		return
	}
	switch v := token.(type) {
	case string:
		r.text(output.Clip(v, maxRedactString))
	case json.Number:
		r.out.WriteString(v.String())
	case bool:
		r.out.WriteString(strconv.FormatBool(v))
	default:
		r.out.WriteString("null")
	}
}

// members writes what is in an object or an array up to its end.
func (r *redactor) members(end byte, member func()) {
	r.out.WriteByte(end - 2) // '[' and '{' are two before what closes them
	for first := true; r.in.More() && !r.full(); first = false {
		if !first {
			r.out.WriteByte(',')
		}
		member()
	}
	if !r.full() {
		_, _ = r.in.Token()
		r.out.WriteByte(end)
	}
}

func (r *redactor) text(s string) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	r.out.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
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
