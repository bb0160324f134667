package background

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// An id is one of these prefixes followed by 26 lower-case base32 characters
// (RFC 4648).
const (
	runPrefix      = "bg_"
	schedulePrefix = "sc_"
)

// newID returns a new random id of 130 bits.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// digestID returns an id derived from a text: 128 bits of its SHA-256.
func digestID(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	return prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
