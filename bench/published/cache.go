package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/toolhost/toolhost/bench/internal/download"
)

// fetch returns the file of a program. The cache keeps it; a file there with another digest is
// replaced.
func (l lab) fetch(ctx context.Context, f download.File) ([]byte, error) {
	if err := os.MkdirAll(l.cache, 0o700); err != nil {
		return nil, err
	}
	kept, digest, err := l.kept(ctx, f)
	if err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(kept); err == nil && download.Digest(data) == digest {
		return data, nil
	}

	dir, err := os.MkdirTemp(l.cache, "fetch")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if !f.Built() {
		data, err := f.Fetch(ctx, dir)
		if err != nil {
			return nil, err
		}
		return data, os.WriteFile(kept, data, 0o600)
	}
	data, err := f.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	return data, errors.Join(os.WriteFile(kept, data, 0o600), os.WriteFile(kept+".sha256", []byte(download.Digest(data)), 0o600))
}

// kept returns where the cache keeps a file, and the digest that it has. A program that is
// built depends on the compiler, so the list cannot have its digest; the cache does.
func (l lab) kept(ctx context.Context, f download.File) (name, digest string, err error) {
	if !f.Built() {
		return filepath.Join(l.cache, f.SHA256+"-"+filepath.Base(f.Name)), f.SHA256, nil
	}
	toolchain, err := f.Toolchain(ctx, l.cache)
	if err != nil {
		return "", "", err
	}
	name = filepath.Join(l.cache, strings.NewReplacer("/", "_", " ", "_").Replace(f.SHA256+"-"+toolchain+"-"+f.Name))
	built, err := os.ReadFile(name + ".sha256")
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return name, string(built), err
}

// share returns the folder with the files of a package that a program sees in /share.
func (l lab) share(ctx context.Context, p program) (string, error) {
	dir := filepath.Join(l.cache, p.SHA256+"-share")
	if hash, err := dirhash.HashDir(dir, "", dirhash.Hash1); err == nil && hash == p.Hash {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := p.Folder(ctx, p.Share, dir); err != nil {
		return "", err
	}

	hash, err := dirhash.HashDir(dir, "", dirhash.Hash1)
	if err == nil && hash != p.Hash {
		err = fmt.Errorf("%s %s has the hash %s, expected %s", p.Package, p.Share, hash, p.Hash)
	}
	return dir, err
}
