package sigstore_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/testing/data"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/sigstore"
	"github.com/toolhost/toolhost/cmd/toolhost/internal/sigstoretest"
	"github.com/toolhost/toolhost/internal/signature"
)

const (
	issuer   = "https://issuer.example"
	identity = "https://github.com/acme/tools/.github/workflows/release.yml@refs/tags/v1.2"
)

var plugin = []byte("a plugin")

// instance is a Sigstore of a test.
type instance struct{ sigstoretest.Instance }

// root is a Verifier with its trusted root.
func (s instance) root(t testing.TB, logs, certificateLogs bool) *sigstore.Verifier {
	return &sigstore.Verifier{Root: s.Root(t, logs, certificateLogs)}
}

func newInstance(t testing.TB) instance { return instance{sigstoretest.New(t)} }

// attest makes a statement of the identity.
func (s instance) attest(t testing.TB, predicate string, data []byte) *protobundle.Bundle {
	return s.Attest(t, identity, issuer, predicate, data)
}

func by(issuer, identity string) signature.Rule {
	return signature.Rule{Sigstore: signature.Identity{Issuer: issuer, Identity: identity}}
}

func soon() time.Time { return time.Now().Add(5 * time.Minute) }

// What an identity has signed is accepted: the file itself, or a statement that says so.
func TestIdentity(t *testing.T) {
	s := newInstance(t)
	want := signature.Signer{Sigstore: signature.Identity{Issuer: issuer, Identity: identity}}
	signed := s.Sign(t, identity, issuer, plugin, soon())
	stranger := s.Sign(t, "mallory@example.com", issuer, plugin, soon())
	onlyStamped := s.Sign(t, identity, issuer, plugin, soon())
	onlyStamped.VerificationMaterial.TlogEntries = nil

	for name, test := range map[string]struct {
		root *sigstore.Verifier
		rule signature.Rule
		text []byte
	}{
		"the file":                         {s.root(t, true, false), by(issuer, identity), sigstoretest.Text(t, signed)},
		"any tag":                          {s.root(t, true, false), by(issuer, "https://github.com/acme/tools/*@refs/tags/*"), sigstoretest.Text(t, signed)},
		"a signature of cosign":            {s.root(t, true, false), by(issuer, identity), sigstoretest.Text(t, s.attest(t, "https://sigstore.dev/cosign/sign/v1", plugin))},
		"a provenance":                     {s.root(t, true, false), by(issuer, identity), sigstoretest.Text(t, s.attest(t, "https://slsa.dev/provenance/v1", plugin))},
		"a root without a log":             {s.root(t, false, false), by(issuer, identity), sigstoretest.Text(t, onlyStamped)},
		"after the bundle of someone else": {s.root(t, true, false), by(issuer, identity), slices.Concat(sigstoretest.Text(t, stranger), sigstoretest.Text(t, signed))},
	} {
		require.NoError(t, test.root.CheckRoot(), name)
		signer, err := test.root.Check(test.text, plugin, test.rule)
		require.NoError(t, err, name)
		require.Equal(t, want, signer, name)
	}
}

// Each way to tamper with a bundle has a message of its own.
func TestTampering(t *testing.T) {
	s, other := newInstance(t), newInstance(t)
	good := by(issuer, identity)
	change := func(f func(b *protobundle.Bundle)) []byte {
		b := s.Sign(t, identity, issuer, plugin, soon())
		f(b)
		return sigstoretest.Text(t, b)
	}
	whole := sigstoretest.Text(t, s.Sign(t, identity, issuer, plugin, soon()))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	for name, test := range map[string]struct {
		root *sigstore.Verifier
		rule signature.Rule
		text []byte
		is   error
		want string
	}{
		"another issuer":   {s.root(t, true, false), good, sigstoretest.Text(t, s.Sign(t, identity, "https://evil.example", plugin, soon())), signature.ErrUntrusted, "signed by " + identity + " (https://evil.example), who is not trusted"},
		"another identity": {s.root(t, true, false), good, sigstoretest.Text(t, s.Sign(t, "mallory@example.com", issuer, plugin, soon())), signature.ErrUntrusted, "signed by mallory@example.com (" + issuer + "), who is not trusted"},
		"a longer identity": {
			s.root(t, true, false), good, sigstoretest.Text(t, s.Sign(t, identity+".evil.example", issuer, plugin, soon())), signature.ErrUntrusted, "release.yml@refs/tags/v1.2.evil.example",
		},
		"a pattern that does not match": {s.root(t, true, false), by(issuer, "https://github.com/acme/other/*"), whole, signature.ErrUntrusted, "who is not trusted"},

		"another file":           {s.root(t, true, false), good, sigstoretest.Text(t, s.Sign(t, identity, issuer, []byte("another"), soon())), signature.ErrInvalid, "the Sigstore bundle is of another file"},
		"a statement on another": {s.root(t, true, false), good, sigstoretest.Text(t, s.attest(t, "https://slsa.dev/provenance/v1", []byte("another"))), signature.ErrInvalid, "provided artifact digests do not match digests in statement"},
		"a report":               {s.root(t, true, false), good, sigstoretest.Text(t, s.attest(t, "https://cosign.sigstore.dev/attestation/vuln/v1", plugin)), signature.ErrUntrusted, `an attestation of the type "https://cosign.sigstore.dev/attestation/vuln/v1", which is no signature`},
		"another digest":         {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.GetMessageSignature().MessageDigest.Digest[0] ^= 1 }), signature.ErrInvalid, "the Sigstore bundle is of another file"},
		"another signature":      {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.GetMessageSignature().Signature[9] ^= 1 }), signature.ErrInvalid, "transparency log signature does not match"},
		"another certificate": {s.root(t, true, false), good, change(func(b *protobundle.Bundle) {
			b.VerificationMaterial.Content = s.Sign(t, identity, issuer, plugin, soon()).VerificationMaterial.Content
		}), signature.ErrInvalid, "transparency log certificate does not match"},
		"another entry": {s.root(t, true, false), good, change(func(b *protobundle.Bundle) {
			b.VerificationMaterial.TlogEntries = s.Sign(t, identity, issuer, plugin, soon()).VerificationMaterial.TlogEntries
		}), signature.ErrInvalid, "transparency log signature does not match"},
		"another entry of a log":  {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries[0].InclusionProof.RootHash[0] ^= 1 }), signature.ErrInvalid, "inclusion"},
		"no entry of a log":       {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries = nil }), signature.ErrInvalid, "not enough verified log entries from transparency log: 0 < 1"},
		"no proof of the log":     {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries[0].InclusionProof = nil }), signature.ErrInvalid, "inclusion proof missing in bundle"},
		"no time":                 {s.root(t, false, false), good, change(func(b *protobundle.Bundle) { b.VerificationMaterial.TimestampVerificationData = nil }), signature.ErrInvalid, "threshold not met for verified signed & log entry integrated timestamps: 0 < 1"},
		"an expired certificate":  {s.root(t, true, false), good, sigstoretest.Text(t, s.Sign(t, identity, issuer, plugin, time.Now().Add(30*time.Minute))), signature.ErrInvalid, "integrated time outside certificate validity"},
		"of another Sigstore":     {other.root(t, true, false), good, whole, signature.ErrInvalid, "not enough verified log entries from transparency log: 0 < 1"},
		"of another authority":    {other.root(t, false, false), good, whole, signature.ErrInvalid, "threshold not met for verified signed"},
		"not in certificate logs": {s.root(t, true, true), good, whole, signature.ErrInvalid, "only able to verify 0 SCT entries; unable to meet threshold of 1"},

		"an older version":    {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.MediaType = "application/vnd.dev.sigstore.bundle+json;version=0.2" }), signature.ErrInvalid, "the Sigstore bundle has the version 0.2, expected 0.3"},
		"a later version":     {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.MediaType = "application/vnd.dev.sigstore.bundle.v0.4+json" }), signature.ErrInvalid, "bundle version v0.4 is not yet supported"},
		"another media type":  {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.MediaType = "text/plain" }), signature.ErrInvalid, "unsupported media type: text/plain"},
		"no material":         {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.VerificationMaterial = nil }), signature.ErrInvalid, "missing verification material"},
		"no content":          {s.root(t, true, false), good, change(func(b *protobundle.Bundle) { b.Content = nil }), signature.ErrInvalid, "missing bundle content"},
		"the end is cut":      {s.root(t, true, false), good, whole[:len(whole)-20], signature.ErrInvalid, "unexpected EOF"},
		"no JSON":             {s.root(t, true, false), good, []byte("RUSp"), signature.ErrInvalid, "invalid character 'R'"},
		"nothing":             {s.root(t, true, false), good, nil, signature.ErrInvalid, "EOF"},
		"an unknown field":    {s.root(t, true, false), good, bytes.Replace(whole, []byte("{"), []byte(`{"x":1,`), 1), signature.ErrInvalid, `unknown field "x"`},
		"very deep":           {s.root(t, true, false), good, []byte(strings.Repeat(`{"a":`, 200_000)), signature.ErrInvalid, "exceeded max depth"},
		"too many":            {s.root(t, true, false), good, bytes.Repeat([]byte("{}\n"), 65), signature.ErrInvalid, "the file has more than 64 bundles"},
		"of a key":            {s.root(t, true, false), good, sigstoretest.Text(t, sigstoretest.SignWithKey(t, key, plugin)), signature.ErrUntrusted, "the Sigstore bundle is of a key, and the trusted signer has a certificate"},
		"of no key":           {s.root(t, true, false), signature.Rule{Key: sigstoretest.PEM(t, key.Public())}, whole, signature.ErrUntrusted, "the Sigstore bundle is of a certificate, and the trusted signer has a key"},
		"of another key":      {new(sigstore.Verifier), signature.Rule{Key: sigstoretest.PEM(t, newKey(t).Public())}, sigstoretest.Text(t, sigstoretest.SignWithKey(t, key, plugin)), signature.ErrInvalid, "the Sigstore bundle is not by this key"},
		"a key, another file": {new(sigstore.Verifier), signature.Rule{Key: sigstoretest.PEM(t, key.Public())}, sigstoretest.Text(t, sigstoretest.SignWithKey(t, key, []byte("another"))), signature.ErrInvalid, "the Sigstore bundle is of another file"},
	} {
		signer, err := test.root.Check(test.text, plugin, test.rule)
		require.ErrorIs(t, err, test.is, name)
		require.ErrorContains(t, err, test.want, name)
		require.Zero(t, signer, name)
	}
}

func newKey(t testing.TB) crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	return key
}

// A key that the operator trusts needs no root.
func TestKey(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	for _, key := range []crypto.Signer{p256, edwards} {
		public := sigstoretest.PEM(t, key.Public())
		der, err := signature.ParseKey(public)
		require.NoError(t, err)
		signer, err := new(sigstore.Verifier).Check(sigstoretest.Text(t, sigstoretest.SignWithKey(t, key, plugin)), plugin, signature.Rule{Key: public})
		require.NoError(t, err)
		require.Equal(t, signature.OfKey(der), signer)
	}
}

// Bundles that cosign made, which sigstore-go has for its tests.
func TestVectors(t *testing.T) {
	r, err := data.TrustedRoot(t, "scaffolding.json").MarshalJSON()
	require.NoError(t, err)
	b, err := data.Bundle(t, "othername.sigstore.json").MarshalJSON()
	require.NoError(t, err)
	v := &sigstore.Verifier{Root: r}
	signer, err := v.Check(b, []byte("blob\n"), by("http://oidc.local:8080", "foo!oidc.local"))
	require.NoError(t, err)
	require.Equal(t, "foo!oidc.local (http://oidc.local:8080)", signer.String())
	_, err = v.Check(b, []byte("blob"), by("http://oidc.local:8080", "foo!oidc.local"))
	require.ErrorIs(t, err, signature.ErrInvalid)

	b, err = data.Bundle(t, "public-key-validity.sigstore.json").MarshalJSON()
	require.NoError(t, err)
	_, err = new(sigstore.Verifier).Check(b, []byte("test content"), signature.Rule{Key: sigstoretest.PEM(t, data.PublicKey(t, "public-key-validity.pem"))})
	require.NoError(t, err)
}

// An invalid trusted root is refused.
func TestRoot(t *testing.T) {
	for text, want := range map[string]string{
		"":   "expected the trusted root of Sigstore",
		"{}": "expected the trusted root of Sigstore",
		`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`: "the trusted root has no certificate authority",
	} {
		require.ErrorContains(t, (&sigstore.Verifier{Root: []byte(text)}).CheckRoot(), want, text)
	}
}

// FuzzBundle: no text is a signature by accident, and none makes the parser panic.
func FuzzBundle(f *testing.F) {
	s := newInstance(f)
	v := s.root(f, true, false)
	f.Add(sigstoretest.Text(f, s.Sign(f, identity, issuer, plugin, soon())))
	f.Add(sigstoretest.Text(f, s.attest(f, "https://slsa.dev/provenance/v1", plugin)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if signer, err := v.Check(text, []byte("another file"), by(issuer, "*@*")); err == nil {
			t.Fatalf("signed by %v", signer)
		}
	})
}

// BenchmarkCheck: what verifying a bundle costs.
func BenchmarkCheck(b *testing.B) {
	s := newInstance(b)
	v, text := s.root(b, true, false), sigstoretest.Text(b, s.Sign(b, identity, issuer, plugin, soon()))
	for b.Loop() {
		_, err := v.Check(text, plugin, by(issuer, identity))
		require.NoError(b, err)
	}
}
