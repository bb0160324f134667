package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/bench/internal/download"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/guest/python"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// source returns a program and its input. It may use the folder, which it makes.
type source func(ctx context.Context, dir string) (wasm, input []byte, err error)

// published is a file of a package, with an input that is in the package as well, or a text.
func published(f download.File, input source) source {
	return func(ctx context.Context, dir string) ([]byte, []byte, error) {
		data, err := f.Fetch(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasSuffix(f.Name, ".gz") {
			if data, err = decompressed(data); err != nil {
				return nil, nil, err
			}
		}
		_, in, err := input(ctx, dir+"-input")
		return data, in, err
	}
}

func decompressed(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// text is an input.
func text(s string) source {
	return func(context.Context, string) ([]byte, []byte, error) { return nil, []byte(s), nil }
}

// file is an input that is a file of a package.
func file(f download.File) source {
	return func(ctx context.Context, dir string) ([]byte, []byte, error) {
		data, err := f.Fetch(ctx, dir)
		return nil, data, err
	}
}

// script is a plugin with a script; the input is its section, which the host reads it from.
func script(plugin func() ([]byte, error)) source {
	return func(context.Context, string) ([]byte, []byte, error) {
		wasm, err := plugin()
		if err != nil {
			return nil, nil, err
		}
		m, err := wasmbin.Parse(wasm)
		if err != nil {
			return nil, nil, err
		}
		section, ok := m.Custom(abi.SectionScript)
		if !ok {
			return nil, nil, errors.New("no script")
		}
		return wasm, section, nil
	}
}

func inJavaScript(module string) source {
	return script(func() ([]byte, error) { return js.Plugin([]byte(module)), nil })
}

func inPython(tool string) source {
	return script(func() ([]byte, error) {
		return python.Plugin(fstest.MapFS{"tool.py": {Data: []byte(tool)}})
	})
}

// goCommand is a command of the Go distribution, whose input is a source file of it.
func goCommand(pkg, input string) source {
	return func(ctx context.Context, dir string) ([]byte, []byte, error) {
		in, err := distribution(ctx, input)
		if err != nil {
			return nil, nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, pkg)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		wasm, err := built(cmd, dir)
		return wasm, in, err
	}
}

// crate is a program in Rust in the folder testdata, where nothing updates its dependencies.
func crate(name, input string) source {
	return func(ctx context.Context, dir string) ([]byte, []byte, error) {
		out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/toolhost/toolhost/bench/held").Output()
		if err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		cmd := exec.CommandContext(ctx, "cargo", "build", "--quiet", "--release", "--locked", "--target", "wasm32-wasip1", "--target-dir", dir)
		cmd.Dir = filepath.Join(strings.TrimSpace(string(out)), "testdata", name)
		wasm, err := built(cmd, filepath.Join(dir, "wasm32-wasip1", "release", name+".wasm"))
		return wasm, []byte(input), err
	}
}

func built(cmd *exec.Cmd, out string) ([]byte, error) {
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, msg)
	}
	return os.ReadFile(out)
}

// unpacked is a program that a package for Node.js has within a script, which exports
// getCompressedBytes.
func unpacked(f download.File, input source) source {
	return func(ctx context.Context, dir string) ([]byte, []byte, error) {
		module, err := f.Fetch(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Join(dir, "program.mjs")
		if err := os.WriteFile(name, module, 0o600); err != nil {
			return nil, nil, err
		}
		cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-e",
			"import { getCompressedBytes } from '"+name+"'; import { brotliDecompressSync } from 'node:zlib';"+
				"process.stdout.write(brotliDecompressSync(getCompressedBytes()));")
		cmd.Stderr = os.Stderr
		wasm, err := cmd.Output()
		if err != nil {
			return nil, nil, fmt.Errorf("node: %w", err)
		}
		_, in, err := input(ctx, dir+"-input")
		return wasm, in, err
	}
}

// goSource is an input: a source file of the Go distribution, several times.
func goSource(name string, times int) source {
	return func(ctx context.Context, _ string) ([]byte, []byte, error) {
		data, err := distribution(ctx, name)
		return nil, bytes.Repeat(data, times), err
	}
}

// distribution returns a source file of the Go distribution.
func distribution(ctx context.Context, name string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "src", filepath.FromSlash(name)))
}
