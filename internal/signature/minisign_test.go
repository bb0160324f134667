package signature_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/signature"
)

func vector(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

// reader reads from a map of files.
func reader(files map[string][]byte) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if data, ok := files[name]; ok {
			return data, nil
		}
		return nil, os.ErrNotExist
	}
}

// signed is plugin.wasm with a signature.
func signed(minisig []byte) func(string) ([]byte, error) {
	return reader(map[string][]byte{"plugin.wasm.minisig": minisig})
}

func trust(keys ...string) *signature.Policy {
	p := &signature.Policy{Require: true}
	for _, key := range keys {
		p.Rules = append(p.Rules, signature.Rule{Minisign: key})
	}
	return p
}

// Signatures by minisign itself are verified, in both of its formats.
func TestMinisignVectors(t *testing.T) {
	plugin := []signature.File{{Name: "plugin.wasm", Data: vector(t, "plugin.txt")}}
	for signatureFile, keyFile := range map[string]string{
		"prehashed.minisig": "test.pub", "legacy.minisig": "test.pub", "encrypted.minisig": "small.pub",
	} {
		key := string(vector(t, keyFile))
		signer, err := trust(key).Signer("", plugin, signed(vector(t, signatureFile)))
		require.NoError(t, err, signatureFile)
		require.Contains(t, key, signer.Minisign)
		require.Equal(t, "minisign "+signer.Minisign, signer.String())

		bare := strings.Split(key, "\n")[1]
		windows := bytes.ReplaceAll(vector(t, signatureFile), []byte("\n"), []byte("\r\n"))
		same, err := trust(bare).Signer("", plugin, signed(windows))
		require.NoError(t, err, signatureFile)
		require.Equal(t, signer, same)
	}
}

// What sign makes of a key is what verify accepts of it.
func TestSignMinisign(t *testing.T) {
	key, err := minisign.DecryptKey("correct horse", vector(t, "small.key"))
	require.NoError(t, err)
	f := signature.File{Name: "plugin.wasm", Data: vector(t, "plugin.txt")}

	text := signature.SignMinisign(key, signature.File{Name: "plug\x1bin\n.wasm", Data: f.Data}, time.Unix(1795640966, 0))
	_, err = trust(string(vector(t, "small.pub"))).Signer("", []signature.File{f}, signed(text))
	require.NoError(t, err)
	require.Contains(t, string(text), "trusted comment: timestamp:1795640966\tfile:plugin.wasm\thashed\n")
}

// Each way to tamper with a signature has a message of its own.
func TestMinisignTampering(t *testing.T) {
	plugin := vector(t, "plugin.txt")
	prehashed, legacy, encrypted := string(vector(t, "prehashed.minisig")), string(vector(t, "legacy.minisig")), string(vector(t, "encrypted.minisig"))
	key, other := string(vector(t, "test.pub")), string(vector(t, "small.pub"))
	lines := strings.Split(prehashed, "\n")
	replaced := func(line int, text string) string {
		out := append([]string{}, lines...)
		out[line] = text
		return strings.Join(out, "\n")
	}
	// The key of another signer, with the identifier of this one.
	var forged minisign.PublicKey
	require.NoError(t, forged.UnmarshalText([]byte(forgeID(t, key, other))))

	for name, test := range map[string]struct {
		key, data, signature string
		is                   error
		want                 string
	}{
		"another file":               {key, string(plugin) + " ", prehashed, signature.ErrInvalid, "the signature is of another file, or of another key with the identifier E93E3EC9C72F01A9"},
		"another file, legacy":       {key, "", legacy, signature.ErrInvalid, "the signature is of another file, "},
		"another key":                {other, string(plugin), prehashed, signature.ErrUntrusted, "signed with the minisign key E93E3EC9C72F01A9, which is not trusted"},
		"another key of that id":     {forged.String(), string(plugin), prehashed, signature.ErrInvalid, "or of another key with the identifier E93E3EC9C72F01A9"},
		"the trusted comment":        {key, string(plugin), strings.Replace(prehashed, "plugin 1.0", "plugin 2.0", 1), signature.ErrInvalid, "the trusted comment has changed since the file was signed"},
		"the trusted comment of":     {key, string(plugin), replaced(3, strings.Split(legacy, "\n")[3]), signature.ErrInvalid, "the trusted comment has changed since the file was signed"},
		"legacy said to be hashed":   {key, string(plugin), strings.Replace(legacy, "RWS", "RUS", 1), signature.ErrInvalid, "the signature is of another file, "},
		"hashed said to be legacy":   {key, string(plugin), strings.Replace(prehashed, "RUS", "RWS", 1), signature.ErrInvalid, "the signature is of another file, "},
		"the hash in place of it":    {key, "hash", legacy, signature.ErrInvalid, "the signature is of another file, "},
		"an unknown algorithm":       {key, string(plugin), strings.Replace(prehashed, "RUS", "AAS", 1), signature.ErrInvalid, "invalid algorithm"},
		"a signature that is cut":    {key, string(plugin), replaced(1, lines[1][:96]), signature.ErrInvalid, "invalid signature length"},
		"the end is cut":             {key, string(plugin), strings.Join(lines[:3], "\n"), signature.ErrInvalid, "invalid signature"},
		"one line":                   {key, string(plugin), lines[1], signature.ErrInvalid, "invalid signature"},
		"a comment signature is cut": {key, string(plugin), replaced(3, lines[3][:80]), signature.ErrInvalid, "invalid comment signature length"},
		"no base64":                  {key, string(plugin), replaced(1, "!"+lines[1]), signature.ErrInvalid, "illegal base64"},
		"no trusted comment":         {key, string(plugin), replaced(2, "comment"), signature.ErrInvalid, "invalid trusted comment"},
		"nothing":                    {key, string(plugin), "", signature.ErrInvalid, "invalid signature"},
		"a huge signature":           {key, string(plugin), replaced(2, "trusted comment: "+strings.Repeat("x", 40_000)), signature.ErrInvalid, "expected at most 32768"},
		"a signature of another one": {key, string(plugin), encrypted, signature.ErrUntrusted, "B623BFEE8E4241B4, which is not trusted"},
	} {
		_, err := trust(test.key).Signer("", []signature.File{{Name: "plugin.wasm", Data: []byte(test.data)}}, signed([]byte(test.signature)))
		require.ErrorIs(t, err, test.is, name)
		require.ErrorContains(t, err, "plugin.wasm: ", name)
		require.ErrorContains(t, err, test.want, name)
	}

	_, err := trust(key).Signer("", []signature.File{{Name: "plugin.wasm", Data: plugin}}, reader(nil))
	require.ErrorIs(t, err, signature.ErrUnsigned)
	require.EqualError(t, err, "plugin.wasm: not signed")
}

// forgeID is a public key with the identifier of another one.
func forgeID(t *testing.T, id, key string) string {
	decode := func(text string) []byte {
		var k minisign.PublicKey
		require.NoError(t, k.UnmarshalText([]byte(text)))
		raw, err := base64.StdEncoding.DecodeString(k.String())
		require.NoError(t, err)
		return raw
	}
	return base64.StdEncoding.EncodeToString(append(decode(id)[:10], decode(key)[10:]...))
}

// FuzzMinisign: no text is a signature by accident, and none makes the parser panic.
func FuzzMinisign(f *testing.F) {
	for _, name := range []string{"prehashed.minisig", "legacy.minisig", "encrypted.minisig", "test.pub"} {
		f.Add(vector(f, name))
	}
	plugin := []signature.File{{Name: "plugin.wasm", Data: vector(f, "plugin.txt")}}
	p, genuine := trust(string(vector(f, "test.pub"))), string(vector(f, "prehashed.minisig"))+string(vector(f, "legacy.minisig"))
	f.Fuzz(func(t *testing.T, text []byte) {
		signer, err := p.Signer("", plugin, signed(text))
		if err != nil {
			require.Zero(t, signer)
			return
		}
		s := new(minisign.Signature) // only those that the key has made
		require.NoError(t, s.UnmarshalText(text))
		require.Contains(t, genuine, "trusted comment: "+s.TrustedComment)
	})
}

// FuzzMinisignKey: no text makes the parser of keys panic.
func FuzzMinisignKey(f *testing.F) {
	f.Add(string(vector(f, "test.pub")))
	f.Add("RWSpAS/HyT4+6aTGKdwlaNHCg/fRJXeHpidPj8aH6iqUgYj4H4sJ4gm/")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := signature.ParseMinisignKey(text)
		if err != nil {
			return
		}
		same, err := signature.ParseMinisignKey(key.String())
		require.NoError(t, err)
		require.True(t, key.Equal(same))
	})
}

// BenchmarkVerify: what verifying a plugin of 5 MB costs, next to its SHA-256.
func BenchmarkVerify(b *testing.B) {
	key, err := minisign.DecryptKey("correct horse", vector(b, "small.key"))
	require.NoError(b, err)
	f := signature.File{Name: "plugin.wasm", Data: make([]byte, 5<<20)}
	text := signature.SignMinisign(key, f, time.Unix(0, 0))
	policy := trust(string(vector(b, "small.pub")))

	b.Run("minisign", func(b *testing.B) {
		for b.Loop() {
			_, err := policy.Signer("", []signature.File{f}, signed(text))
			require.NoError(b, err)
		}
	})
	b.Run("sha256", func(b *testing.B) {
		for b.Loop() {
			_ = sha256.Sum256(f.Data)
		}
	})
}
