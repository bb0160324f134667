package signature_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/signature"
)

// The message about a signer that is not trusted with a plugin speaks of a key as a thing,
// and of an identity as a person.
func TestUntrustedWithPlugin(t *testing.T) {
	p := signature.Policy{Rules: []signature.Rule{{Minisign: "RWQ", Plugins: []string{"web"}}}}
	for _, test := range []struct {
		signer signature.Signer
		want   string
	}{
		{signature.Signer{Minisign: "RWS"}, `signed by minisign RWS, which is not trusted with the plugin "web"`},
		{signature.Signer{Key: "sha256:0a"}, `signed by key sha256:0a, which is not trusted with the plugin "web"`},
		{signature.Signer{Sigstore: signature.Identity{Issuer: "https://issuer.example", Identity: "ana@example.com"}}, `signed by ana@example.com (https://issuer.example), who is not trusted with the plugin "web"`},
	} {
		_, err := p.Check("web", "plugins", test.signer)
		require.ErrorIs(t, err, signature.ErrUntrusted)
		require.EqualError(t, err, test.want)
	}
}
