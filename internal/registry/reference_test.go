package registry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/registry"
)

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseReference(t *testing.T) {
	for _, source := range []string{
		"oci://ghcr.io/acme/web:1.4",
		"oci://localhost/web:1.4",
		"oci://localhost:5000/a/b/c:latest",
		"oci://[::1]:5000/web:1",
		"oci://127.0.0.1:5000/web@sha256:" + hex64,
		"oci://ghcr.io/acme/web:1.4@sha256:" + hex64,
		"oci://registry:5000/web:1",
	} {
		r, err := registry.ParseReference(source)
		require.NoError(t, err, source)
		require.Equal(t, source, r.String())
	}

	r, err := registry.ParseReference("oci://ghcr.io/acme/web:1.4@sha256:" + hex64)
	require.NoError(t, err)
	require.Equal(t, registry.Reference{Registry: "ghcr.io", Repository: "acme/web", Tag: "1.4", Digest: "sha256:" + hex64}, r)
	require.Equal(t, "web", r.Name())
	require.Equal(t, "oci://ghcr.io/acme/web@sha256:"+hex64, r.At(r.Digest).String())
}

// What another program would read differently is refused.
func TestReferencesThatAreRefused(t *testing.T) {
	for source, want := range map[string]string{
		"":                                                 "does not begin with oci://",
		"ghcr.io/acme/web:1":                               "does not begin with oci://",
		"OCI://ghcr.io/acme/web:1":                         "does not begin with oci://",
		"https://ghcr.io/acme/web:1":                       "does not begin with oci://",
		"oci://web:1":                                      "expected oci://HOST/NAME:TAG",
		"oci://ghcr.io/acme/web":                           "it has no tag: name one, such as oci://ghcr.io/acme/web:1.0, or a digest",
		"oci://ghcr.io/acme/web:":                          `"" is not a tag`,
		"oci://ghcr.io/acme/web:a b":                       `"a b" is not a tag`,
		"oci://ghcr.io/acme/web:1:2":                       `"1:2" is not a tag`,
		"oci://ghcr.io/Acme/web:1":                         `"Acme/web" is not the name of a repository`,
		"oci://ghcr.io/../web:1":                           `"../web" is not the name of a repository`,
		"oci://ghcr.io//web:1":                             `"/web" is not the name of a repository`,
		"oci://ghcr.io/web?x:1":                            `"web?x" is not the name of a repository`,
		"oci://acme/web:1":                                 `"acme" is not a registry: name its host, such as ghcr.io/acme`,
		"oci:///web:1":                                     `"" is not the host of a registry`,
		"oci://user:pw@ghcr.io/web:1":                      "expected oci://HOST/NAME:TAG",
		"oci://ghcr.io:x/web:1":                            `"ghcr.io:x" is not the host of a registry`,
		"oci://GHCR.io/acme/web:1":                         `has upper-case letters: write ghcr.io`,
		"oci://ghcr․io/acme/web:1":                         "is not the host of a registry", // U+2024
		"oci://gһcr.io/acme/web:1":                         "is not the host of a registry", // Cyrillic
		"oci://ghcr.io /acme/web:1":                        "is not the host of a registry",
		"oci://ghcr.io/a/w@sha256:12":                      `"sha256:12" is not a digest`,
		"oci://ghcr.io/a/w@md5:" + hex64:                   "is not a digest",
		"oci://ghcr.io/a/w@":                               `"" is not a digest`,
		"oci://ghcr.io/a/w@sha512:" + hex64 + hex64:        "is not a digest: expected sha256:",
		"oci://ghcr.io/" + strings.Repeat("a", 700) + ":1": "it has 716 bytes, expected at most 600",
	} {
		_, err := registry.ParseReference(source)
		require.ErrorIs(t, err, registry.ErrReference, source)
		require.ErrorContains(t, err, want, source)
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add("oci://ghcr.io/acme/web:1.4@sha256:" + hex64)
	f.Add("oci://[::1]:5000/web:1")
	f.Fuzz(func(t *testing.T, source string) {
		r, err := registry.ParseReference(source)
		if err != nil {
			return
		}
		require.Equal(t, source, r.String())
		again, err := registry.ParseReference(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
