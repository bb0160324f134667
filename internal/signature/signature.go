// Package signature verifies who signed a file, and whether the operator trusts the signer.
// A signature is a file next to the signed file: a minisign signature or a Sigstore bundle.
// The package does not deal with certificates: see [Bundles].
package signature

import (
	"errors"
	"fmt"
)

// Endings lists the file name endings of signatures. They come after the full name of the
// signed file, as in plugin.wasm.minisig.
var Endings = []string{MinisignEnding, BundleEnding}

const (
	MinisignEnding = ".minisig"
	BundleEnding   = ".sigstore.json"
)

// MaxSize is the maximum size of a signature of any kind, in bytes.
const MaxSize = 1 << 20

// Reasons to refuse a file. The errors of this package match one of them.
var (
	ErrUnsigned  = errors.New("not signed")
	ErrUntrusted = errors.New("the signer is not trusted")
	ErrInvalid   = errors.New("the signature is not valid")
)

// reason is an error with a message of its own that matches one of the reasons.
type reason struct {
	error
	is error
}

func (r *reason) Unwrap() []error { return []error{r.error, r.is} }

// Invalid returns an error that matches [ErrInvalid].
func Invalid(format string, args ...any) error { return because(ErrInvalid, format, args...) }

// Untrusted returns an error that matches [ErrUntrusted].
func Untrusted(format string, args ...any) error { return because(ErrUntrusted, format, args...) }

func because(is error, format string, args ...any) error {
	return &reason{fmt.Errorf(format, args...), is}
}

// Signer identifies the signer of a file, as proven by the signature. Signers are
// comparable. The zero Signer means that the file is not signed; in any other Signer,
// exactly one field is set.
type Signer struct {
	Minisign string   `json:"minisign,omitempty"` // public key, as minisign prints it
	Key      string   `json:"key,omitempty"`      // "sha256:" and the SHA-256 of the public key in DER form, in hex
	Sigstore Identity `json:"sigstore,omitzero"`
}

// Identity is a signer's identity, certified by an issuer.
type Identity struct {
	Issuer   string `json:"issuer"`   // URL of the issuer
	Identity string `json:"identity"` // identity of the signer, such as an email address or the URL of a workflow
}

// String describes the signer in a few words. It returns "" for the zero Signer. Identities
// may contain any characters: escape them before you print the result.
func (s Signer) String() string {
	switch {
	case s.Minisign != "":
		return "minisign " + s.Minisign
	case s.Key != "":
		return "key " + s.Key
	case s.Sigstore != Identity{}:
		return fmt.Sprintf("%s (%s)", s.Sigstore.Identity, s.Sigstore.Issuer)
	}
	return ""
}

// File is a file whose signature is to be verified.
type File struct {
	Name string // name of the file, without its folder
	Data []byte
}
