package registry_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/registry"
	"github.com/toolhost/toolhost/internal/registry/registrytest"
)

// wasm is a module of its own for each text.
func wasm(text string) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), text...) }

func ref(t *testing.T, source string) registry.Reference {
	t.Helper()
	r, err := registry.ParseReference(source)
	require.NoError(t, err)
	return r
}

func newStore(t *testing.T) *registry.Store {
	return registry.NewStore(filepath.Join(t.TempDir(), "store"))
}

// What was pushed is pulled, from the registry of the CNCF.
func TestPushAndPull(t *testing.T) {
	host := registrytest.Start(t, "")
	store := newStore(t)
	c := &registry.Client{Store: store}
	web := ref(t, "oci://"+host+"/acme/web:1.0")

	pushed, err := c.Push(t.Context(), web, wasm("one"), map[string]string{"org.opencontainers.image.title": "web"})
	require.NoError(t, err)
	again, err := c.Push(t.Context(), web, wasm("one"), map[string]string{"org.opencontainers.image.title": "web"})
	require.NoError(t, err)
	require.Equal(t, pushed, again, "the digest depends on the content alone")

	_, err = store.Find(web)
	require.ErrorIs(t, err, registry.ErrNotStored)
	a, err := c.Pull(t.Context(), web)
	require.NoError(t, err)
	require.Equal(t, registry.Artifact{Source: web.String(), Digest: pushed, Module: digest.FromBytes(wasm("one")), Size: 11}, a)
	module, err := store.Module(a)
	require.NoError(t, err)
	require.Equal(t, wasm("one"), module)

	// A tag moves. The store has what it named when it was pulled, and the digest stays.
	moved, err := c.Push(t.Context(), web, wasm("two"), nil)
	require.NoError(t, err)
	now, err := c.Resolve(t.Context(), web)
	require.NoError(t, err)
	require.Equal(t, moved, now)
	stored, err := store.Find(web)
	require.NoError(t, err)
	require.Equal(t, a, stored)
	_, err = c.Pull(t.Context(), web)
	require.NoError(t, err)
	stored, err = store.Find(web)
	require.NoError(t, err)
	require.Equal(t, moved, stored.Digest)
	old, err := store.Find(web.At(pushed))
	require.NoError(t, err)
	require.Equal(t, a.Module, old.Module)

	_, err = c.Pull(t.Context(), ref(t, "oci://"+host+"/acme/web:2.0"))
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = c.Push(t.Context(), web.At(pushed), wasm("one"), nil)
	require.ErrorIs(t, err, registry.ErrReference)
	_, err = c.Push(t.Context(), web, []byte("text"), nil)
	require.ErrorIs(t, err, registry.ErrNoPlugin)
}

// Credentials are those of docker's configuration.
func TestCredentials(t *testing.T) {
	const ana = "ana:$2a$05$sIm.2ywS7SMppkuGbMpwTuzEzrR6H249YliG9u6YkdiKbEYuf6C.e" // secret
	host := registrytest.Start(t, ana)
	home := t.TempDir()
	t.Setenv("DOCKER_CONFIG", home)
	web := ref(t, "oci://"+host+"/acme/web:1.0")

	push := func() error {
		credential, err := registry.DockerCredentials()
		require.NoError(t, err)
		_, err = (&registry.Client{Credential: credential}).Push(t.Context(), web, wasm("one"), nil)
		return err
	}
	err := push()
	require.ErrorIs(t, err, registry.ErrDenied)
	require.ErrorContains(t, err, "docker login "+host+" stores credentials")

	config := filepath.Join(home, "config.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"auths":{"`+host+`":{"auth":"YW5hOndyb25n"}}}`), 0o600))
	require.ErrorIs(t, push(), registry.ErrDenied)
	require.NoError(t, os.WriteFile(config, []byte(`{"auths":{"`+host+`":{"auth":"YW5hOnNlY3JldA=="}}}`), 0o600))
	require.NoError(t, push())

	// A helper that docker's configuration names is asked in its place.
	require.NoError(t, os.WriteFile(filepath.Join(home, "docker-credential-vault"), []byte("#!/bin/sh\necho '{\"Username\":\"ana\",\"Secret\":\"secret\"}'\n"), 0o700))
	t.Setenv("PATH", home+string(os.PathListSeparator)+os.Getenv("PATH"))
	require.NoError(t, os.WriteFile(config, []byte(`{"credHelpers":{"`+host+`":"vault"}}`), 0o600))
	require.NoError(t, push())
}

// Documents are attached to a manifest as referrers, which this registry lists by a tag.
func TestAttach(t *testing.T) {
	host := registrytest.Start(t, "")
	c := &registry.Client{Store: newStore(t)}
	web := ref(t, "oci://"+host+"/acme/web:1.0")
	d, err := c.Push(t.Context(), web, wasm("one"), nil)
	require.NoError(t, err)

	none, err := c.Attached(t.Context(), web, d, "text/signature")
	require.NoError(t, err)
	require.Empty(t, none)
	for _, document := range []string{"first", "second"} {
		to, err := c.Attach(t.Context(), web, "text/signature", []byte(document), map[string]string{"by": "ana"})
		require.NoError(t, err)
		require.Equal(t, d, to)
	}
	_, err = c.Attach(t.Context(), web, "text/other", []byte("other"), nil)
	require.NoError(t, err)

	found, err := c.Attached(t.Context(), web, d, "text/signature")
	require.NoError(t, err)
	require.ElementsMatch(t, [][]byte{[]byte("first"), []byte("second")}, found)
	now, err := c.Resolve(t.Context(), web)
	require.NoError(t, err)
	require.Equal(t, d, now, "what is attached changes no digest")

	// A pull brings along those of the types that it is told, of each the preferred one.
	c.Attachments = map[string]string{".sig": "text/signature", ".none": "text/none"}
	c.Prefer = func(ending string, module, document []byte) bool {
		require.Equal(t, ".sig", ending)
		require.Equal(t, wasm("one"), module)
		return string(document) == "second"
	}
	a, err := c.Pull(t.Context(), web)
	require.NoError(t, err)
	require.Len(t, a.Attached, 1)
	for _, r := range []registry.Reference{web, web.At(d)} {
		document, err := fs.ReadFile(c.Store.FS(r), "web.wasm.sig")
		require.NoError(t, err)
		require.Equal(t, "second", string(document))
	}
	require.NoError(t, fstest.TestFS(c.Store.FS(web), "web.wasm", "web.wasm.sig"))

	// What is attached later is brought to what was pulled, if it is preferred and no
	// preferred one is there. Nothing else changes.
	later := func(prefer string) registry.Artifact {
		c.Prefer = func(_ string, _, document []byte) bool { return string(document) == prefer }
		now, err := c.PullAttached(t.Context(), web, a)
		require.NoError(t, err)
		return now
	}
	a.Source = web.At(d).String()
	require.Equal(t, a, later("second"))
	require.Equal(t, a, later("third"))
	_, err = c.Attach(t.Context(), web, "text/signature", []byte("third"), nil)
	require.NoError(t, err)
	require.Equal(t, a, later("second"))
	require.Equal(t, digest.FromString("third"), later("third").Attached[".sig"])
	document, err := fs.ReadFile(c.Store.FS(web.At(d)), "web.wasm.sig")
	require.NoError(t, err)
	require.Equal(t, "third", string(document))
	document, err = fs.ReadFile(c.Store.FS(web), "web.wasm.sig")
	require.NoError(t, err)
	require.Equal(t, "second", string(document), "a tag is as it was until it is named")

	cleaned, err := c.Store.Clean(func(registry.Artifact) bool { return true })
	require.NoError(t, err)
	require.Empty(t, cleaned)
}
