// Package pluginbuild builds plugins from their sources with the Go toolchain, and seals them:
// it writes the manifest that a plugin describes into the plugin's file, so that listing a
// folder of plugins runs none of their code.
package pluginbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// A Describer examines plugins, and asks them to describe themselves, as a [host.Host] does.
type Describer interface {
	Inspect(wasm []byte) (*host.Info, error)
	Describe(ctx context.Context, wasm []byte) (manifest []byte, err error)
}

// Source is the source of a plugin, in a folder of its own. If the folder contains a sidecar
// manifest NAME.toolhost.*, the plugin is a WASI command, otherwise a reactor.
type Source struct {
	Name string // name of the folder, and of the files that are built
	Dir  string
}

// Sources lists the plugins below dir: those of its subfolders that contain a main.go.
func Sources(dir string) ([]Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Source
	for _, e := range entries {
		s := Source{e.Name(), filepath.Join(dir, e.Name())}
		if _, err := os.Stat(filepath.Join(s.Dir, "main.go")); err == nil && e.IsDir() {
			found = append(found, s)
		}
	}
	return found, nil
}

func (s Source) output(out string) string { return filepath.Join(out, s.Name+".wasm") }

// Stale reports whether the plugin built in out is missing, or is older than a file in its
// source folder or in one of the folders in also.
func (s Source) Stale(out string, also ...string) bool {
	built, err := os.Stat(s.output(out))
	if err != nil {
		return true
	}
	for _, dir := range append(also, s.Dir) {
		if newest(dir).After(built.ModTime()) {
			return true
		}
	}
	return false
}

// newest returns the time of the last change below dir. The removal of a file counts as well,
// because it changes the file's folder.
func newest(dir string) (t time.Time) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil && info.ModTime().After(t) {
			t = info.ModTime()
		}
		return nil
	})
	return t
}

// Build builds NAME.wasm in out, and puts the sidecar next to it or seals the manifest into
// it. Each existing file is replaced as a whole or not at all.
func Build(ctx context.Context, h Describer, s Source, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	sidecars, err := s.sidecars()
	if err != nil {
		return err
	}

	wasm, err := Compile(ctx, s.Dir, len(sidecars) == 0, "-mod=readonly")
	if err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}

	for _, sidecar := range sidecars {
		data, err := os.ReadFile(sidecar)
		if err != nil {
			return err
		}
		if err := Replace(filepath.Join(out, filepath.Base(sidecar)), data); err != nil {
			return err
		}
	}
	if len(sidecars) == 0 {
		if wasm, err = Seal(ctx, h, wasm); err != nil {
			return fmt.Errorf("seal %s: %w", s.Name, err)
		}
	}
	return Replace(s.output(out), wasm)
}

// ErrNoClone means that the working directory is not in a clone of this project, which
// contains the sources of the examples.
var ErrNoClone = errors.New("not in a clone of the project: the example plugins are built from source")

// Examples builds example plugins from the clone around the working directory: those that are
// missing in the folder dist, or older than their sources. It returns the folder; if dist is
// empty, that is examples/plugins/dist in the clone. Before each plugin is built, building is
// called with the number of plugins built so far and the total.
func Examples(ctx context.Context, cfg host.Config, dist string, names []string, building func(name string, done, total int)) (string, error) {
	root, err := Clone()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "examples", "plugins")
	if dist == "" {
		dist = filepath.Join(dir, "dist")
	}

	var stale []Source
	for _, name := range names {
		s := Source{Name: name, Dir: filepath.Join(dir, name)}
		if s.Stale(dist, filepath.Join(root, "guest"), filepath.Join(root, "abi")) {
			stale = append(stale, s)
		}
	}
	if len(stale) == 0 {
		return dist, nil
	}

	h, err := host.New(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer h.Close(ctx)
	for i, s := range stale {
		building(s.Name, i, len(stale))
		if err := Build(ctx, h, s, dist); err != nil {
			return "", err
		}
	}
	return dist, nil
}

// Clone returns the top folder of the clone around the working directory. The error is
// ErrNoClone, or says why the working directory cannot be found.
func Clone() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	module := []byte("module github.com/toolhost/toolhost\n")
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.Contains(data, module) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoClone
		}
		dir = parent
	}
}

// sidecars lists the manifests next to the sources.
func (s Source) sidecars() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), s.Name+".toolhost.") {
			found = append(found, filepath.Join(s.Dir, e.Name()))
		}
	}
	return found, nil
}

// Compile runs the Go toolchain in the folder of a program, with the given GOFLAGS.
func Compile(ctx context.Context, dir string, reactor bool, flags string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "toolhost-build-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)

	file := filepath.Join(temp, "plugin.wasm")
	args := []string{"build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", file}
	if reactor {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // for the compilers it has started
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS="+flags, "GOWASM=")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("the go command was not found: install Go from https://go.dev/dl")
	case err != nil:
		return nil, fmt.Errorf("go build: %w\n%s", err, strings.TrimSpace(output.String()))
	}
	return os.ReadFile(file)
}

// Seal asks a plugin for its manifest, checks the manifest, and writes it into the binary as
// the custom section toolhost.manifest. A plugin that is already sealed is returned unchanged.
func Seal(ctx context.Context, h Describer, wasm []byte) ([]byte, error) {
	info, err := h.Inspect(wasm)
	if err != nil {
		return nil, err
	}
	if info.Manifest != nil {
		return wasm, nil
	}
	manifest, err := h.Describe(ctx, wasm)
	if err != nil {
		return nil, err
	}
	if _, err := abi.DecodeManifest(manifest); err != nil {
		return nil, err
	}
	return wasmbin.AppendCustom(wasm, abi.SectionManifest, manifest), nil
}

// Replace writes a file in such a way that readers see either the old content or the new.
func Replace(name string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(name), ".build-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if cerr := temp.Chmod(0o644); err == nil {
		err = cerr
	}
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}
