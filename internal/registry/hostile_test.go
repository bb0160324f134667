package registry_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/registry"
)

// Each lie of a registry is refused for a reason of its own, and stores nothing.
func TestHostileRegistry(t *testing.T) {
	other := digest.FromString("other")
	plain := func(mutate func(t *testing.T, f fake, layer *ocispec.Descriptor)) func(*testing.T, fake) {
		return func(t *testing.T, f fake) {
			layer := f.add(wasmLayer, wasm("x"))
			mutate(t, f, &layer)
			f.plugin(t, layer)
		}
	}
	image := func(layers ...[]byte) func(*testing.T, fake) {
		return func(t *testing.T, f fake) {
			var all []ocispec.Descriptor
			for _, data := range layers {
				all = append(all, f.add(dockerLayer, data))
			}
			f.plugin(t, all...)
		}
	}
	index := func(platforms ...string) func(*testing.T, fake) {
		return func(t *testing.T, f fake) {
			var all []ocispec.Descriptor
			for i, p := range platforms {
				desc := f.add(ociManifest, fmt.Appendf(nil, "{%d}", i))
				os, arch, _ := strings.Cut(p, "/")
				desc.Platform = &ocispec.Platform{OS: os, Architecture: arch}
				all = append(all, desc)
			}
			f.tag(t, ociIndex, ocispec.Index{Manifests: all})
		}
	}

	for name, c := range map[string]struct {
		build func(t *testing.T, f fake)
		is    error // nil: the library has no name for it
		want  string
	}{
		"another manifest": {func(t *testing.T, f fake) {
			f.plugin(t, f.add(wasmLayer, wasm("x")))
			a := f["1"]
			for d := range f {
				if a := f[d]; a.mediaType == ociManifest && d != "1" {
					a.body = bytes.Replace(a.body, []byte("{"), []byte("["), 1)
					a.header = http.Header{"Docker-Content-Digest": {d}}
					f[d] = a
				}
			}
			f["1"] = a
		}, registry.ErrDigest, "the manifest is to be sha256:"},
		"another digest of the manifest, announced": {func(t *testing.T, f fake) {
			f.plugin(t, f.add(wasmLayer, wasm("x")))
			for d, a := range f {
				if a.mediaType == ociManifest && d != "1" {
					a.header = http.Header{"Docker-Content-Digest": {string(other)}}
					f[d] = a
				}
			}
		}, nil, "digest mismatch in Docker-Content-Digest"},
		"a digest that is not SHA-256": {func(t *testing.T, f fake) {
			f.plugin(t, f.add(wasmLayer, wasm("x")))
			a := f["1"]
			a.header = http.Header{"Docker-Content-Digest": {string(digest.SHA512.FromString("x"))}}
			f["1"] = a
		}, registry.ErrDigest, `the registry answers "sha512:`},
		"a huge manifest": {func(t *testing.T, f fake) {
			f.add(ociManifest, nil)
			f["1"] = answer{mediaType: ociManifest, body: bytes.Repeat([]byte(" "), registry.MaxManifest+1)}
		}, registry.ErrTooLarge, "the manifest has 1048577 bytes, expected at most 1048576"},
		"a manifest that is not JSON":   {func(t *testing.T, f fake) { f["1"] = f[string(f.add(ociManifest, []byte("<html>")).Digest)] }, registry.ErrNoPlugin, "is not valid JSON"},
		"a manifest of an unknown type": {func(t *testing.T, f fake) { f["1"] = f[string(f.add("text/html", []byte("<html>")).Digest)] }, registry.ErrNoPlugin, `it is "text/html", expected a manifest`},
		"a manifest of two types": {func(t *testing.T, f fake) {
			f.tag(t, ociManifest, ocispec.Manifest{MediaType: ociIndex})
		}, registry.ErrNoPlugin, "the registry that it is"},
		"a manifest of two versions of the truth": {func(t *testing.T, f fake) {
			f.plugin(t, f.add(wasmLayer, wasm("x")))
			for d, a := range f {
				if a.mediaType == ociManifest && d != "1" {
					a.mediaType = "application/json"
					f[d] = a
				}
			}
		}, nil, "mismatch response Content-Type"},
		"many layers": {func(t *testing.T, f fake) {
			f.plugin(t, make([]ocispec.Descriptor, registry.MaxLayers+1)...)
		}, registry.ErrTooLarge, "the manifest has 129 layers, expected at most 128"},
		"no layers":   {func(t *testing.T, f fake) { f.plugin(t) }, registry.ErrNoPlugin, "its layers are []"},
		"two modules": {func(t *testing.T, f fake) { f.plugin(t, f.add(wasmLayer, wasm("x")), f.add(wasmLayer, wasm("y"))) }, registry.ErrAmbiguous, "it has 2 modules, expected one"},
		"a chart": {func(t *testing.T, f fake) {
			f.plugin(t, f.add("application/vnd.cncf.helm.chart.content.v1.tar+gzip", []byte("x")))
		}, registry.ErrNoPlugin, `its layers are ["application/vnd.cncf.helm.chart.content.v1.tar+gzip"], expected one of application/wasm`},
		"not a module": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { *l = f.add(wasmLayer, []byte("MZ, a program")) }), registry.ErrNoPlugin, `the module begins with "MZ, "`},

		"another module": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) {
			f[string(l.Digest)] = answer{mediaType: wasmLayer, body: wasm("y")}
		}), registry.ErrDigest, "the module is to be sha256:"},
		"a module that is longer": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) {
			f[string(l.Digest)] = answer{mediaType: wasmLayer, body: wasm("xy"), length: -1}
		}), registry.ErrSize, "has more than the 9 bytes that were announced"},
		"a module that is shorter": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) {
			f[string(l.Digest)] = answer{mediaType: wasmLayer, body: wasm(""), length: -1}
		}), registry.ErrSize, "ends after 8 bytes of 9"},
		"a module of another announced length": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) {
			f[string(l.Digest)] = answer{mediaType: wasmLayer, body: wasm("xyz")}
		}), nil, "mismatch Content-Length"},
		"a huge module":    {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { l.Size = registry.MaxModule + 1 }), registry.ErrTooLarge, "the module has 67108865 bytes"},
		"a negative size":  {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { l.Size = -1 }), registry.ErrSize, "the module has -1 bytes"},
		"a weak digest":    {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { l.Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" }), registry.ErrDigest, `the module is "md5:`},
		"a path as digest": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { l.Digest = "sha256:../../../../etc/passwd" }), registry.ErrDigest, `the module is "sha256:../`},
		"no such module":   {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) { delete(f, string(l.Digest)) }), registry.ErrNotFound, "the registry does not have it"},
		"a module that never ends": {plain(func(t *testing.T, f fake, l *ocispec.Descriptor) {
			f[string(l.Digest)] = answer{mediaType: wasmLayer, body: wasm(""), stuck: true}
		}), registry.ErrTimeout, "the registry is too slow: no end after 10m0s"},

		"an index for many platforms": {index("linux/amd64", "linux/arm64"), registry.ErrAmbiguous, "the index has manifests for linux/amd64, linux/arm64, and none for WebAssembly"},
		"an index with two for wasm":  {index("wasi/wasm", "wasip1/wasm"), registry.ErrAmbiguous, "the index has 2 manifests for WebAssembly"},
		"an empty index":              {index(), registry.ErrNoPlugin, "the index is empty"},
		"an index with too many":      {index(make([]string, 129)...), registry.ErrTooLarge, "the index has 129 entries"},
		"an index that leads to itself": {func(t *testing.T, f fake) {
			f.tag(t, ociIndex, ocispec.Index{Manifests: []ocispec.Descriptor{f.add(ociIndex, []byte("{}"))}})
		}, registry.ErrNoPlugin, "the index leads to another index"},

		"an image without a plugin":    {image(archive(t, entry("etc/plugin.wasm", wasm("x")))), registry.ErrNoPlugin, "the image has no file /plugin.wasm"},
		"an image that has removed it": {image(archive(t, entry("plugin.wasm", wasm("x"))), archive(t, entry(".wh.plugin.wasm", nil))), registry.ErrNoPlugin, "its last layers remove it"},
		"an image that leads out":      {image(archive(t, entry("a/../../plugin.wasm", wasm("x")))), registry.ErrUnsafe, `it has an entry "a/../../plugin.wasm", which leads out of it`},
		"an image with a link":         {image(archive(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "plugin.wasm", Linkname: "/etc/passwd"})), registry.ErrUnsafe, "/plugin.wasm is not a regular file"},
		"an image with two":            {image(archive(t, entry("plugin.wasm", wasm("x")), entry("./plugin.wasm", wasm("y")))), registry.ErrAmbiguous, "a layer of the image has /plugin.wasm twice"},
		"an image that unpacks":        {image(zeros(t, registry.MaxUnpacked)), registry.ErrTooLarge, "unpacks to more than 268435456 bytes"},
		"an image with a huge plugin":  {image(archive(t, entry("plugin.wasm", make([]byte, registry.MaxModule+1)))), registry.ErrTooLarge, "/plugin.wasm has 67108865 bytes"},
		"an image with too many entries": {func(t *testing.T, f fake) {
			var all []*tar.Header
			for i := range registry.MaxEntries + 1 {
				all = append(all, entry(fmt.Sprint(i), nil))
			}
			image(archive(t, all...))(t, f)
		}, registry.ErrTooLarge, "has more than 10000 entries"},
		"an image that is no archive": {image([]byte("text, and no archive")), registry.ErrUnsafe, "gzip: invalid header"},
		"an image of one broken file": {image(archive(t, entry("a", nil))[:20]), registry.ErrUnsafe, "it is not a valid archive"},
		"an image of a script":        {image(archive(t, entry("plugin.wasm", []byte("#!/bin/sh")))), registry.ErrNoPlugin, `the module begins with "#!/b"`},

		"an error with a page": {func(t *testing.T, f fake) { f["1"] = answer{status: 418, body: []byte("<html>")} }, nil, "418"},
		"no access":            {func(t *testing.T, f fake) { f["1"] = answer{status: 403} }, registry.ErrDenied, "docker login r.test stores credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fake{}
				c.build(t, f)
				dir := t.TempDir() + "/store"
				client := &registry.Client{Store: registry.NewStore(dir), Transport: network{"https://r.test": f}}

				_, err := client.Pull(t.Context(), ref(t, "oci://r.test/web:1"))

				var failed *registry.Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, "oci://r.test/web:1", failed.Source)
				require.ErrorContains(t, err, c.want)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				require.NoDirExists(t, dir)
			})
		})
	}
}

// Documents that the registry lists as attached, and are not, are refused.
func TestHostileReferrers(t *testing.T) {
	const kind = "text/signature"
	f := fake{}
	f.plugin(t, f.add(wasmLayer, wasm("x")))
	subject := f["1"]
	d := digest.FromBytes(subject.body)
	manifest := func(of digest.Digest) []byte {
		body, err := json.Marshal(ocispec.Manifest{
			MediaType: ociManifest, ArtifactType: kind, Layers: []ocispec.Descriptor{f.add(kind, []byte("signed"))},
			Subject: &ocispec.Descriptor{MediaType: ociManifest, Digest: of, Size: int64(len(subject.body))},
		})
		require.NoError(t, err)
		return body
	}
	list := func(descs ...ocispec.Descriptor) {
		for i := range descs {
			descs[i].ArtifactType = kind
		}
		body, err := json.Marshal(ocispec.Index{MediaType: ociIndex, Manifests: descs})
		require.NoError(t, err)
		f["/v2/web/referrers/"+string(d)] = answer{mediaType: ociIndex, body: body}
	}
	attached := func() ([][]byte, error) {
		client := &registry.Client{Transport: network{"https://r.test": f}}
		return client.Attached(t.Context(), ref(t, "oci://r.test/web:1"), d, kind)
	}

	list(f.add(ociManifest, manifest(d)))
	found, err := attached()
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("signed")}, found)

	list(f.add(ociManifest, manifest(digest.FromString("other"))))
	_, err = attached()
	require.ErrorIs(t, err, registry.ErrDigest)
	require.ErrorContains(t, err, "is listed as attached to sha256:")

	list(make([]ocispec.Descriptor, registry.MaxAttached+1)...)
	_, err = attached()
	require.ErrorIs(t, err, registry.ErrTooLarge)
}
