package main

import (
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/signature"
)

// Of several signatures in a registry the one of a trusted signer is taken, also if that
// is trusted with this registry only.
func TestIsTrusted(t *testing.T) {
	public, secret, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	_, other, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	module := []byte("a module")
	sign := func(key minisign.PrivateKey) []byte {
		return signature.SignMinisign(key, signature.File{Name: "plugin.wasm", Data: module}, time.Unix(0, 0))
	}

	var c config
	c.trust.Rules = []signature.Rule{{Minisign: public.String(), Sources: []string{"oci://registry.example/acme/"}}}
	require.True(t, c.isTrusted(signature.MinisignEnding, module, sign(secret)))
	require.False(t, c.isTrusted(signature.MinisignEnding, module, sign(other)))
	require.False(t, c.isTrusted(signature.MinisignEnding, []byte("another"), sign(secret)))
	require.NotEmpty(t, c.trust.Rules[0].Sources, "the configuration stays as it is")
}
