package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Images in the layout in which hyper-mcp publishes plugins: their Dockerfile contains
// COPY plugin.wasm /.
const (
	imageModule = "plugin.wasm" // file in the root folder
	whiteout    = ".wh."        // prefix of a file's name by which a layer removes a file
	opaque      = ".wh..wh..opq"
)

// Limits on the layers of an image.
const (
	maxUnpacked = 256 << 20 // bytes in a layer, uncompressed
	maxEntries  = 10_000    // entries in a layer
	maxImage    = 256 << 20 // bytes in all layers, compressed
)

// errAbsent means that a layer does not contain the module.
var errAbsent = errors.New("absent")

// imageModuleOf returns the module in an image. It takes it from the uppermost layer
// that adds or removes it.
func imageModuleOf(ctx context.Context, from fetcher, layers []ocispec.Descriptor) ([]byte, error) {
	total := int64(0)
	for _, layer := range slices.Backward(layers) {
		if total += max(layer.Size, 0); total > maxImage {
			return nil, fmt.Errorf("%w: the layers of the image have more than %d bytes", ErrTooLarge, maxImage)
		}
		data, err := fetch(ctx, from, layer, "a layer of the image", maxLayer)
		if err != nil {
			return nil, err
		}
		module, err := unpack(layer.MediaType, data)
		if !errors.Is(err, errAbsent) {
			return module, err
		}
	}
	return nil, fmt.Errorf("%w: the image has no file /%s", ErrNoPlugin, imageModule)
}

// unpack returns the module in a layer of an image, without writing to disk. The error
// is errAbsent if a lower layer may contain it.
func unpack(mediaType string, layer []byte) ([]byte, error) {
	var in io.Reader = bytes.NewReader(layer)
	if strings.HasSuffix(mediaType, "gzip") {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsafe, err)
		}
		in = unzipped
	}

	limited := &io.LimitedReader{R: in, N: maxUnpacked + 1}
	archive := tar.NewReader(limited)
	var module []byte
	removed := false
	for n := 0; ; n++ {
		header, err := archive.Next()
		switch {
		case limited.N <= 0:
			return nil, fmt.Errorf("%w: a layer of the image unpacks to more than %d bytes", ErrTooLarge, maxUnpacked)
		case errors.Is(err, io.EOF):
			return found(module, removed)
		case err != nil:
			return nil, fmt.Errorf("%w: it is not a valid archive: %w", ErrUnsafe, err)
		case n >= maxEntries:
			return nil, fmt.Errorf("%w: a layer of the image has more than %d entries", ErrTooLarge, maxEntries)
		}

		name, err := rooted(header.Name)
		if err != nil {
			return nil, err
		}
		switch name {
		case imageModule:
			if module != nil {
				return nil, fmt.Errorf("%w: a layer of the image has /%s twice", ErrAmbiguous, imageModule)
			}
			if module, err = readModule(archive, header); err != nil {
				return nil, err
			}
		case whiteout + imageModule, opaque:
			removed = true
		}
	}
}

// found returns the module in a layer, or an error if the layer lacks or removes it.
func found(module []byte, removed bool) ([]byte, error) {
	switch {
	case module != nil:
		return module, nil
	case removed:
		return nil, fmt.Errorf("%w: the image has no file /%s: its last layers remove it", ErrNoPlugin, imageModule)
	}
	return nil, errAbsent
}

// rooted returns the name of an entry relative to the root folder.
func rooted(name string) (string, error) {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("%w: it has an entry %.80q, which leads out of it", ErrUnsafe, name)
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func readModule(in io.Reader, header *tar.Header) ([]byte, error) {
	if header.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%w: /%s is not a regular file", ErrUnsafe, imageModule)
	}
	if header.Size > MaxModule {
		return nil, fmt.Errorf("%w: /%s has %d bytes, expected at most %d", ErrTooLarge, imageModule, header.Size, MaxModule)
	}
	var data bytes.Buffer
	if _, err := io.Copy(&data, in); err != nil {
		return nil, fmt.Errorf("%w: /%s: %w", ErrUnsafe, imageModule, err)
	}
	return data.Bytes(), nil
}
