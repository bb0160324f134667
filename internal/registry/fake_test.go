package registry_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

const (
	ociManifest = ocispec.MediaTypeImageManifest
	ociIndex    = ocispec.MediaTypeImageIndex
	wasmLayer   = "application/wasm"
	dockerLayer = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// An answer is what a registry says of an address.
type answer struct {
	mediaType string
	body      []byte
	status    int         // 0: 200
	header    http.Header // more
	length    int         // that is announced; 0: that of body
	stuck     bool        // never ends
}

// fake is a registry, or another server, by what it answers. A path that ends with a tag or
// a digest may be given by that alone.
type fake map[string]answer

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := f[r.URL.Path]
	if !ok {
		a, ok = f[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", a.mediaType)
	if strings.Contains(r.URL.Path, "/manifests/") && w.Header().Get("Docker-Content-Digest") == "" {
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(a.body).String())
	}
	length := len(a.body)
	if a.length != 0 {
		length = a.length
	}
	if length > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(length))
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body)
	}
	if a.stuck {
		<-r.Context().Done()
	}
}

// network answers requests by host, without any.
type network map[string]http.Handler

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	h := n[r.URL.Scheme+"://"+r.URL.Host]
	if h == nil {
		return nil, fmt.Errorf("no such host: %s", r.URL.Host)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	response := recorder.Result()
	response.Request = r
	return response, nil
}

func (f fake) add(mediaType string, body []byte) ocispec.Descriptor {
	d := digest.FromBytes(body)
	f[string(d)] = answer{mediaType: mediaType, body: body}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(body))}
}

// plugin adds a manifest with these layers under the tag 1.
func (f fake) plugin(t *testing.T, layers ...ocispec.Descriptor) {
	f.tag(t, ociManifest, ocispec.Manifest{MediaType: ociManifest, Layers: layers})
}

func (f fake) tag(t *testing.T, mediaType string, document any) ocispec.Descriptor {
	body, err := json.Marshal(document)
	require.NoError(t, err)
	desc := f.add(mediaType, body)
	f["1"] = f[string(desc.Digest)]
	return desc
}

// archive is a layer of an image with files.
func archive(t *testing.T, files ...*tar.Header) []byte {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, h := range files {
		content := h.Linkname // of a regular file
		if h.Typeflag == tar.TypeReg {
			h.Size, h.Linkname = int64(len(content)), ""
		}
		require.NoError(t, w.WriteHeader(h))
		if h.Typeflag == tar.TypeReg {
			_, err := io.WriteString(w, content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, zipped.Close())
	return out.Bytes()
}

func entry(name string, content []byte) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Linkname: string(content)}
}

// zeros is a gzip of so many bytes.
func zeros(t *testing.T, n int64) []byte {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(zipped)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: n}))
	block := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(block)) {
		_, err = w.Write(block[:min(n, int64(len(block)))])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zipped.Close())
	return out.Bytes()
}
