// Package sigstoretest provides an instance of Sigstore for tests. Its authorities, log
// and signatures are real, but it has keys of its own.
package sigstoretest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
)

// Instance is an instance of Sigstore.
type Instance struct{ *ca.VirtualSigstore }

// New creates an instance.
func New(t require.TestingT) Instance {
	v, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	return Instance{v}
}

// Root returns the instance's trusted root in JSON. The parameter logs says whether the root
// includes the logs of signatures, and certificateLogs whether it includes the
// logs of certificates.
func (s Instance) Root(t require.TestingT, logs, certificateLogs bool) []byte {
	var rekor, ct map[string]*root.TransparencyLog
	if logs {
		rekor = withIDs(t, s.RekorLogs())
	}
	if certificateLogs {
		ct = withIDs(t, s.CTLogs())
	}
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, s.FulcioCertificateAuthorities(), ct, s.TimestampingAuthorities(), rekor)
	require.NoError(t, err)
	text, err := r.MarshalJSON()
	require.NoError(t, err)
	return text
}

// withIDs sets the identifiers in a trusted root, given in bytes.
func withIDs(t require.TestingT, logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	for id, log := range logs {
		var err error
		log.ID, err = hex.DecodeString(id)
		require.NoError(t, err)
	}
	return logs
}

// Sign signs data as of a given time, as cosign sign-blob does. The certificate is valid
// for ten minutes from now.
func (s Instance) Sign(t require.TestingT, who, by string, data []byte, at time.Time) *protobundle.Bundle {
	e, err := s.SignAtTime(who, by, data, at)
	require.NoError(t, err)
	return s.bundle(t, e)
}

// Attest signs an in-toto statement about data. The given predicate is the type of the
// statement.
func (s Instance) Attest(t require.TestingT, who, by, predicate string, data []byte) *protobundle.Bundle {
	statement := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"p","digest":{"sha256":"%x"}}],"predicateType":%q,"predicate":{}}`, sha256.Sum256(data), predicate)
	e, err := s.AttestAtTime(who, by, []byte(statement), time.Now().Add(5*time.Minute), true)
	require.NoError(t, err)
	return s.bundle(t, e)
}

// bundle returns a bundle of version 0.3.
func (s Instance) bundle(t require.TestingT, e *ca.TestEntity) *protobundle.Bundle {
	content, err := e.VerificationContent()
	require.NoError(t, err)
	entries, err := e.TlogEntries()
	require.NoError(t, err)
	stamps, err := e.Timestamps()
	require.NoError(t, err)

	b := newBundle()
	b.VerificationMaterial.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}}
	for _, stamp := range stamps {
		b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps = append(b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps, &protocommon.RFC3161SignedTimestamp{SignedTimestamp: stamp})
	}
	for _, entry := range entries {
		b.VerificationMaterial.TlogEntries = append(b.VerificationMaterial.TlogEntries, s.proved(t, entry))
	}

	signed, err := e.SignatureContent()
	require.NoError(t, err)
	if envelope := signed.EnvelopeContent(); envelope != nil {
		b.Content = &protobundle.Bundle_DsseEnvelope{DsseEnvelope: envelopeOf(t, envelope.RawEnvelope())}
		return b
	}
	m := signed.MessageSignatureContent()
	b.Content = message(m.Digest(), m.Signature())
	return b
}

// proved returns a log entry in the form that bundles contain: with an inclusion proof,
// and with the log's promise, which also covers the time.
func (s Instance) proved(t require.TestingT, entry *tlog.Entry) *protorekor.TransparencyLogEntry {
	out := entry.TransparencyLogEntry()
	var body struct{ Kind, APIVersion string }
	require.NoError(t, json.Unmarshal(out.CanonicalizedBody, &body))
	out.KindVersion = &protorekor.KindVersion{Kind: body.Kind, Version: body.APIVersion}

	promise, err := s.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(out.CanonicalizedBody), IntegratedTime: out.IntegratedTime,
		LogIndex: out.LogIndex, LogID: hex.EncodeToString(out.LogId.KeyId),
	})
	require.NoError(t, err)
	out.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	if out.InclusionProof != nil {
		return out
	}

	proof, err := s.GetInclusionProof(out.CanonicalizedBody)
	require.NoError(t, err)
	hash, err := hex.DecodeString(*proof.RootHash)
	require.NoError(t, err)
	out.InclusionProof = &protorekor.InclusionProof{
		LogIndex: *proof.LogIndex, TreeSize: *proof.TreeSize, RootHash: hash,
		Checkpoint: &protorekor.Checkpoint{Envelope: *proof.Checkpoint},
	}
	return out
}

func newBundle() *protobundle.Bundle {
	return &protobundle.Bundle{
		MediaType:            "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: &protobundle.VerificationMaterial{TimestampVerificationData: &protobundle.TimestampVerificationData{}},
	}
}

func message(digest, signature []byte) *protobundle.Bundle_MessageSignature {
	return &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
		MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest},
		Signature:     signature,
	}}
}

func envelopeOf(t require.TestingT, e *dsse.Envelope) *protodsse.Envelope {
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	require.NoError(t, err)
	signature, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	require.NoError(t, err)
	return &protodsse.Envelope{PayloadType: e.PayloadType, Payload: payload, Signatures: []*protodsse.Signature{{Sig: signature, Keyid: e.Signatures[0].KeyID}}}
}

// SignWithKey signs data with a key, as cosign sign-blob --key does.
func SignWithKey(t require.TestingT, key crypto.Signer, data []byte) *protobundle.Bundle {
	sum := sha256.Sum256(data)
	var signature []byte
	var err error
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		signature, err = ecdsa.SignASN1(rand.Reader, k, sum[:])
	} else {
		signature, err = key.Sign(rand.Reader, data, crypto.Hash(0))
	}
	require.NoError(t, err)

	b := newBundle()
	b.VerificationMaterial.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: "a key"}}
	b.Content = message(sum[:], signature)
	return b
}

// PEM returns a public key in PEM form.
func PEM(t require.TestingT, public crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// Text returns a bundle as the content of a file, on one line.
func Text(t require.TestingT, b *protobundle.Bundle) []byte {
	data, err := protojson.Marshal(b)
	require.NoError(t, err)
	var line bytes.Buffer
	require.NoError(t, json.Compact(&line, data))
	return append(line.Bytes(), '\n')
}
