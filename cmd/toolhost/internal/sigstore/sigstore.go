// Package sigstore verifies Sigstore bundles offline. It is the only package that imports
// sigstore-go, which has many dependencies.
package sigstore

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	sig "github.com/sigstore/sigstore/pkg/signature"

	"github.com/toolhost/toolhost/internal/signature"
)

// Verifier verifies bundles. It implements signature.Bundles. The zero Verifier verifies
// only bundles that were signed with a key.
type Verifier struct {
	// Root is a trusted root in JSON (trusted_root.json): the certificate authorities, logs
	// and timestamping authorities of a Sigstore instance.
	Root []byte
}

// CheckRoot returns an error if the root cannot be used.
func (v *Verifier) CheckRoot() error {
	r, err := root.NewTrustedRootFromJSON(v.Root)
	if err != nil {
		return fmt.Errorf("expected the trusted root of Sigstore, as trusted_root.json has it: %w", err)
	}
	if len(r.FulcioCertificateAuthorities()) == 0 {
		return errors.New("the trusted root has no certificate authority")
	}
	return nil
}

// maxBundles is the maximum number of bundles in a file, one after the other.
const maxBundles = 64

// Check verifies a file of bundles. At least one bundle must be a signature of data by the
// rule's signer. Check skips bundles from other signers.
func (v *Verifier) Check(text, data []byte, r signature.Rule) (signature.Signer, error) {
	err := signature.Invalid("the file has no bundle of Sigstore")
	decoder := json.NewDecoder(bytes.NewReader(text))
	for i := 0; ; i++ {
		var raw json.RawMessage
		wrong := decoder.Decode(&raw)
		switch {
		case errors.Is(wrong, io.EOF) && i > 0:
			return signature.Signer{}, err
		case wrong != nil:
			return signature.Signer{}, signature.Invalid("not a bundle of Sigstore: %w", wrong)
		case i == maxBundles:
			return signature.Signer{}, signature.Invalid("the file has more than %d bundles", maxBundles)
		}

		signer, wrong := v.check(raw, data, r)
		if wrong == nil {
			return signer, nil
		}
		if i == 0 || errors.Is(wrong, signature.ErrInvalid) {
			err = wrong
		}
	}
}

// check verifies one bundle.
func (v *Verifier) check(text, data []byte, r signature.Rule) (signature.Signer, error) {
	b, err := parse(text)
	if err != nil {
		return signature.Signer{}, err
	}
	content, err := b.VerificationContent()
	if err != nil {
		return signature.Signer{}, signature.Invalid("not a bundle of Sigstore: %w", err)
	}

	switch ofKey := content.Certificate() == nil; {
	case ofKey && r.Key == "":
		return signature.Signer{}, signature.Untrusted("the Sigstore bundle is of a key, and the trusted signer has a certificate")
	case !ofKey && r.Key != "":
		return signature.Signer{}, signature.Untrusted("the Sigstore bundle is of a certificate, and the trusted signer has a key")
	case ofAnother(b, data):
		return signature.Signer{}, signature.Invalid("the Sigstore bundle is of another file")
	case ofKey:
		return checkKey(b, data, r.Key)
	}
	return v.checkIdentity(b, data, r.Sigstore)
}

// ofAnother reports whether a bundle claims to sign other data. The claim is verified later.
func ofAnother(b *bundle.Bundle, data []byte) bool {
	m := b.GetMessageSignature().GetMessageDigest()
	sum := sha256.Sum256(data)
	return m.GetAlgorithm() == protocommon.HashAlgorithm_SHA2_256 && !bytes.Equal(m.GetDigest(), sum[:])
}

// parse parses a bundle of version 0.3.
func parse(text []byte) (*bundle.Bundle, error) {
	b := new(bundle.Bundle)
	if err := b.UnmarshalJSON(text); err != nil {
		return nil, signature.Invalid("not a bundle of Sigstore: %w", err)
	}
	if version, _ := b.Version(); version != "v0.3" && !strings.HasPrefix(version, "v0.3.") {
		return nil, signature.Invalid("the Sigstore bundle has the version %s, expected 0.3", strings.TrimPrefix(version, "v"))
	}
	return b, nil
}

// checkKey verifies a bundle that was signed with a key. When it was signed does not matter:
// the key is trusted for as long as the operator lists it.
func checkKey(b *bundle.Bundle, data []byte, pem string) (signature.Signer, error) {
	der, err := signature.ParseKey(pem)
	if err != nil {
		return signature.Signer{}, err
	}
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return signature.Signer{}, err
	}
	verifier, err := sig.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return signature.Signer{}, err
	}

	key := root.NewExpiringKey(verifier, time.Time{}, time.Time{})
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return key, nil })
	v, err := verify.NewVerifier(material, verify.WithNoObserverTimestamps())
	if err != nil {
		return signature.Signer{}, err
	}
	result, err := v.Verify(b, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(data)), verify.WithKey()))
	if err != nil {
		return signature.Signer{}, signature.Invalid("the Sigstore bundle is not by this key: %w", err)
	}
	return signature.OfKey(der), isSignature(result)
}

// checkIdentity verifies a bundle that was signed with the certificate of an identity. It
// requires each kind of evidence for which the root lists an authority.
func (v *Verifier) checkIdentity(b *bundle.Bundle, data []byte, trusted signature.Identity) (signature.Signer, error) {
	r, err := root.NewTrustedRootFromJSON(v.Root)
	if err != nil {
		return signature.Signer{}, fmt.Errorf("the trusted root of Sigstore cannot be read: %w", err)
	}
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if len(r.RekorLogs()) > 0 {
		options = append(options, verify.WithTransparencyLog(1))
	}
	if len(r.CTLogs()) > 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	verifier, err := verify.NewVerifier(r, options...)
	if err != nil {
		return signature.Signer{}, err
	}

	// The identity comes last: it is reliable only once the certificate is verified.
	result, err := verifier.Verify(b, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(data)), verify.WithoutIdentitiesUnsafe()))
	if err != nil {
		return signature.Signer{}, signature.Invalid("the Sigstore bundle is not valid: %w", err)
	}
	c := result.Signature.Certificate
	signer := signature.Signer{Sigstore: signature.Identity{Issuer: c.Issuer, Identity: c.SubjectAlternativeName}}
	if c.Issuer != trusted.Issuer || !signature.Matches(trusted.Identity, c.SubjectAlternativeName) {
		return signature.Signer{}, signature.Untrusted("signed by %v, who is not trusted", signer)
	}
	return signer, isSignature(result)
}

// signing lists the types of statements that vouch for a file. Other types, such as
// vulnerability reports, do not count as signatures.
var signing = []string{"https://sigstore.dev/cosign/sign/v1", "https://slsa.dev/provenance/"}

// isSignature refuses an attestation that does not vouch for the file.
func isSignature(r *verify.VerificationResult) error {
	if r.Statement == nil { // a signature of the file itself
		return nil
	}
	for _, prefix := range signing {
		if strings.HasPrefix(r.Statement.PredicateType, prefix) {
			return nil
		}
	}
	return signature.Untrusted("the Sigstore bundle is an attestation of the type %.200q, which is no signature", r.Statement.PredicateType)
}
