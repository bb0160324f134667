package registry_test

import (
	"archive/tar"
	"bytes"
	"os"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/registry"
)

// Layouts that are read: that of the CNCF, earlier ones, and images of docker.
func TestLayouts(t *testing.T) {
	module := wasm("x")
	for name, build := range map[string]func(f fake){
		"wasm":        func(f fake) { f.plugin(t, f.add(wasmLayer, module)) },
		"wasm-to-oci": func(f fake) { f.plugin(t, f.add("application/vnd.wasm.content.layer.v1+wasm", module)) },
		"istio": func(f fake) {
			f.plugin(t, f.add("application/vnd.module.wasm.config.v1+json", []byte("{}")), f.add("application/vnd.module.wasm.content.layer.v1+wasm", module))
		},
		"hyper-mcp": func(f fake) {
			layer := f.add(dockerLayer, archive(t, entry("plugin.wasm", module)))
			const manifest = "application/vnd.docker.distribution.manifest.v2+json"
			f.tag(t, manifest, ocispec.Manifest{MediaType: manifest, Layers: []ocispec.Descriptor{layer}})
		},
		"the uppermost layer": func(f fake) {
			f.plugin(t, f.add(ocispec.MediaTypeImageLayerGzip, archive(t, entry("./plugin.wasm", wasm("below")))),
				f.add(ocispec.MediaTypeImageLayerGzip, archive(t, entry("usr/plugin.wasm", wasm("other")), entry("/plugin.wasm", module))),
				f.add(ocispec.MediaTypeImageLayerGzip, archive(t, entry("etc/motd", nil))))
		},
		"an index, with an attestation": func(f fake) {
			desc := f.tag(t, ociManifest, ocispec.Manifest{Layers: []ocispec.Descriptor{f.add(wasmLayer, module)}})
			desc.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
			other := f.add(ociManifest, []byte("{}"))
			other.Annotations = map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
			f.tag(t, ociIndex, ocispec.Index{Manifests: []ocispec.Descriptor{desc, other}})
		},
		"an index for many platforms": func(f fake) {
			desc := f.tag(t, ociManifest, ocispec.Manifest{Layers: []ocispec.Descriptor{f.add(wasmLayer, module)}})
			desc.Platform = &ocispec.Platform{OS: "wasip1", Architecture: "wasm"}
			other := f.add(ociManifest, []byte("{}"))
			other.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
			f.tag(t, ociIndex, ocispec.Index{Manifests: []ocispec.Descriptor{other, desc}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake{}
			build(f)
			store := newStore(t)
			c := &registry.Client{Store: store, Transport: network{"https://r.test": f}}
			a, err := c.Pull(t.Context(), ref(t, "oci://r.test/web:1"))
			require.NoError(t, err)
			got, err := store.Module(a)
			require.NoError(t, err)
			require.Equal(t, module, got)
		})
	}
}

func FuzzManifest(f *testing.F) {
	module := wasm("x")
	f.Add(ociManifest, []byte(`{"layers":[{"mediaType":"application/wasm","size":9,"digest":"`+string(digest.FromBytes(module))+`"}]}`))
	f.Add(ociIndex, []byte(`{"manifests":[{"platform":{"architecture":"wasm"}}]}`))
	f.Fuzz(func(t *testing.T, mediaType string, body []byte) {
		registryOf := fake{}
		registryOf.add(wasmLayer, module)
		registryOf["1"] = registryOf[string(registryOf.add(mediaType, body).Digest)]
		client := &registry.Client{Store: newStore(t), Transport: network{"https://r.test": registryOf}}
		a, err := client.Pull(t.Context(), ref(t, "oci://r.test/web:1"))
		require.True(t, err != nil || a.Module == digest.FromBytes(module))
	})
}

func FuzzImage(f *testing.F) {
	f.Add(archiveOf(f, "plugin.wasm", wasm("x")))
	f.Fuzz(func(t *testing.T, layer []byte) {
		registryOf := fake{}
		registryOf.plugin(t, registryOf.add(ocispec.MediaTypeImageLayer, layer))
		client := &registry.Client{Store: newStore(t), Transport: network{"https://r.test": registryOf}}
		_, _ = client.Pull(t.Context(), ref(t, "oci://r.test/web:1"))
	})
}

func archiveOf(f *testing.F, name string, content []byte) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(f, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: int64(os.ModePerm)}))
	_, err := w.Write(content)
	require.NoError(f, err)
	require.NoError(f, w.Close())
	return out.Bytes()
}
