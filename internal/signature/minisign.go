package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode"

	"aead.dev/minisign"
	"golang.org/x/crypto/blake2b"
)

// maxMinisign is the maximum size of a minisign signature, in bytes: minisign itself limits
// a comment to 8 KiB.
const maxMinisign = 32 << 10

// ParseMinisignKey parses a minisign public key: either the line that minisign prints, or
// the whole file with its comment.
func ParseMinisignKey(text string) (minisign.PublicKey, error) {
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(text)); err != nil {
		return key, fmt.Errorf("expected a public key of minisign, such as RWQ…: %w", err)
	}
	return key, nil
}

// KeyID formats a key's identifier as minisign prints it.
func KeyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// parseMinisign parses a signature.
func parseMinisign(text []byte) (*minisign.Signature, error) {
	if len(text) > maxMinisign {
		return nil, Invalid("the signature has %d bytes, expected at most %d", len(text), maxMinisign)
	}
	s := new(minisign.Signature)
	if err := s.UnmarshalText(text); err != nil {
		return nil, Invalid("%w", err)
	}
	return s, nil
}

// checkMinisign verifies a parsed signature of either kind: of the data itself, or of its
// hash. The library makes the decision; the other checks only find the reason for the error
// message.
func checkMinisign(key minisign.PublicKey, s *minisign.Signature, data []byte) error {
	text, err := s.MarshalText()
	if err != nil {
		return Invalid("%w", err)
	}
	if minisign.Verify(key, data, text) {
		return nil
	}

	raw, _ := base64.StdEncoding.DecodeString(key.String()) // two bytes, the identifier, the key
	signed := data
	if s.Algorithm == minisign.HashEdDSA {
		hash := blake2b.Sum512(data)
		signed = hash[:]
	}
	switch {
	case s.KeyID != key.ID():
		return Invalid("the signature is of the key %s, expected one of %s", KeyID(s.KeyID), KeyID(key.ID()))
	case !ed25519.Verify(raw[len(raw)-ed25519.PublicKeySize:], signed, s.Signature[:]):
		return Invalid("the signature is of another file, or of another key with the identifier %s", KeyID(s.KeyID))
	}
	return Invalid("the trusted comment has changed since the file was signed")
}

// SignMinisign signs the hash of a file, as minisign does. The comment contains the time and
// the name of the file.
func SignMinisign(key minisign.PrivateKey, f File, at time.Time) []byte {
	r := minisign.NewReader(bytes.NewReader(f.Data))
	_, _ = io.Copy(io.Discard, r) // it hashes what passes
	comment := fmt.Sprintf("timestamp:%d\tfile:%s\thashed", at.Unix(), printable(f.Name))
	return r.SignWithComments(key, comment, "signature from minisign secret key")
}

// printable removes the characters that minisign refuses in a comment.
func printable(s string) string {
	return string(slices.DeleteFunc([]rune(s), func(r rune) bool { return !unicode.IsPrint(r) }))
}
