package identity

import (
	"crypto/sha256"
	"crypto/subtle"
)

// A StaticToken is a token that the operator has configured, of which only the digest is
// kept. The zero value is no token.
type StaticToken struct {
	digest [sha256.Size]byte
	set    bool
}

// NewStaticToken returns a token. An empty text is no token.
func NewStaticToken(text string) StaticToken {
	return StaticToken{sha256.Sum256([]byte(text)), text != ""}
}

// Set reports whether there is a token.
func (t StaticToken) Set() bool { return t.set }

// Matches compares a text with the token, in constant time. No text matches no token.
func (t StaticToken) Matches(text string) bool {
	given := sha256.Sum256([]byte(text))
	return t.set && subtle.ConstantTimeCompare(given[:], t.digest[:]) == 1
}
