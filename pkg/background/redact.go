package background

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolhost/toolhost/pkg/background/output"
)

const (
	maxRedactString = 200
	maxRedacted     = 500
)

// loggedArgs are arguments in a log line. They may be megabytes long, so they
// are only read if the line is written.
type loggedArgs json.RawMessage

// LogValue implements [slog.LogValuer].
func (a loggedArgs) LogValue() slog.Value { return slog.StringValue(a.String()) }

// String keeps other code from printing the arguments unredacted.
func (a loggedArgs) String() string { return Redact(json.RawMessage(a)) }

// Redact returns JSON arguments in a form fit for a log line: the value of every key
// that names a secret, at any depth, is "<redacted>"; strings are cut to 200
// characters and the whole to 500. Invalid JSON becomes "<unprintable>".
//
// Only the letters and digits of keys are compared, ignoring case. These count as
// secret: api_key, auth, authorization, and keys that end in token, secret,
// password, apikey, credential, credentials, privatekey or cookie.
func Redact(args json.RawMessage) string {
	if !json.Valid(args) {
		return "<unprintable>"
	}

	var out bytes.Buffer
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	in, to := jsontext.NewDecoder(bytes.NewReader(args), lenient...), jsontext.NewEncoder(&out, lenient...)
	for to.OutputOffset() <= maxRedacted*utf8.UTFMax { // the rest would be cut off
		token, err := in.ReadToken()
		if err != nil { // the end
			break
		}

		parent, members := in.StackIndex(in.StackDepth())
		switch isName := parent == '{' && members%2 == 1; {
		case token.Kind() != '"':
			_ = to.WriteToken(token)
		case !isName:
			_ = to.WriteToken(jsontext.String(output.Clip(token.String(), maxRedactString)))
		default:
			secret := secretKey(token.String())
			_ = to.WriteToken(token)
			if secret {
				_ = to.WriteToken(jsontext.String("<redacted>"))
				_ = in.SkipValue()
			}
		}
	}

	for depth := to.StackDepth(); depth > 0; depth-- { // the encoder writes whole values
		kind, members := to.StackIndex(depth)
		if kind == '{' && members%2 == 1 {
			_ = to.WriteToken(jsontext.Null)
		}
		_ = to.WriteToken(map[jsontext.Kind]jsontext.Token{'{': jsontext.EndObject, '[': jsontext.EndArray}[kind])
	}
	return output.Clip(strings.TrimSpace(out.String()), maxRedacted)
}

var secretKeys = regexp.MustCompile(`^auth(orization)?$|(token|secret|password|apikey|credentials?|privatekey|cookie)$`)

func secretKey(key string) bool {
	return secretKeys.MatchString(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, key))
}
