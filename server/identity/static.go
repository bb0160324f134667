package identity

import (
	"crypto/sha256"
	"crypto/subtle"
)

// A StaticToken is the digest of a token that the operator has configured. The zero
// value means that no token is configured.
type StaticToken struct {
	digest [sha256.Size]byte
	set    bool
}

// NewStaticToken returns the StaticToken with the given text; the zero StaticToken if the text
// is empty.
func NewStaticToken(text string) StaticToken {
	return StaticToken{sha256.Sum256([]byte(text)), text != ""}
}

// Set reports whether a token is configured.
func (t StaticToken) Set() bool { return t.set }

// Matches compares a text with the token, in constant time. Nothing matches the zero StaticToken.
func (t StaticToken) Matches(text string) bool {
	given := sha256.Sum256([]byte(text))
	return t.set && subtle.ConstantTimeCompare(given[:], t.digest[:]) == 1
}
