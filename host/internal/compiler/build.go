package compiler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/toolhost/toolhost/internal/owned"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Features are the WebAssembly features that the rewriter supports.
const Features = wasmbin.Features

// Config returns the configuration of runtimes that compile or load code.
func Config() wazero.RuntimeConfig { return configured(wazero.NewRuntimeConfig()) }

// InterpreterConfig returns the configuration of runtimes that interpret.
func InterpreterConfig() wazero.RuntimeConfig {
	return configured(wazero.NewRuntimeConfigInterpreter())
}

func configured(c wazero.RuntimeConfig) wazero.RuntimeConfig {
	return c.WithCoreFeatures(Features).WithDebugInfoEnabled(false)
}

// WithWorkers returns a context with which compilations use all processors.
func WithWorkers(ctx context.Context) context.Context {
	return experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
}

// moduleFile is the name of the one file of a build that is not code.
const moduleFile = "module"

// Build rewrites and compiles a plugin, and leaves two files in an empty folder: see
// [Built]. If the module is at fault, the error is an [*Error]; if ctx is done, its cause;
// otherwise it says what is wrong with the folder. When ctx is done, a compilation stops
// only between two functions.
func Build(ctx context.Context, dir string, wasm []byte) error {
	program, m, err := Rewrite(wasm)
	if err != nil {
		return err
	}
	short := *program
	short.Wasm = Outline(m, program.Wasm)
	if err := os.WriteFile(filepath.Join(dir, moduleFile), short.Encode(), 0o600); err != nil {
		return err
	}

	cache, where, err := FileCache(dir)
	if err != nil {
		return err
	}
	defer cache.Close(ctx)
	r := wazero.NewRuntimeWithConfig(ctx, Config().WithCompilationCache(cache))
	defer r.Close(ctx)

	// The name of the outline's file is the name that its loader will look
	// for. If the outline is refused, so is the module.
	outline, err := compileFile(ctx, r, where, short.Wasm)
	if err == nil {
		err = os.Remove(outline)
	}
	if err != nil {
		return err
	}

	code, err := compileFile(ctx, r, where, program.Wasm)
	if err != nil {
		return err
	}
	return os.Rename(code, outline)
}

// compileFile compiles a module and returns the resulting file, the only one
// in its folder.
func compileFile(ctx context.Context, r wazero.Runtime, where string, wasm []byte) (string, error) {
	_, err := r.CompileModule(WithWorkers(ctx), wasm)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", refusedByRuntime(err)
	}
	return onlyFile(where, "")
}

// onlyFile returns the file in dir whose name begins with prefix. There must be exactly
// one.
func onlyFile(dir, prefix string) (string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), prefix) })
	if len(all) != 1 {
		return "", fmt.Errorf("the runtime made %d files in %s, expected one", len(all), dir)
	}
	return filepath.Join(dir, all[0].Name()), nil
}

// Built returns the two files that a build left in a folder. One is the input of [Decode], in
// which an outline stands for the module. The other is the module's code, under the name that
// the runtime looks for when it loads the outline. Built checks that both exist and belong to
// this user.
func Built(dir string) (module, code string, err error) {
	module = filepath.Join(dir, moduleFile)
	where, err := codeFolder(dir)
	if err == nil {
		err = owned.Folder(where)
	}
	if err == nil {
		code, err = onlyFile(where, "")
	}
	if err != nil {
		return "", "", err
	}

	if name := filepath.Base(code); len(name) > 128 || strings.Trim(name, "0123456789abcdef") != "" {
		return "", "", fmt.Errorf("unexpected name of compiled code: %q", name)
	}
	for _, name := range []string{module, code} {
		info, err := os.Lstat(name)
		if err == nil {
			err = owned.File(name, info)
		}
		if err != nil {
			return "", "", err
		}
	}
	return module, code, nil
}

// FileCache returns a wazero cache in a folder, and the subfolder that it uses, whose
// name contains wazero's version, the system and the processor.
func FileCache(dir string) (cache wazero.CompilationCache, where string, err error) {
	if cache, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
		return nil, "", err
	}

	if where, err = codeFolder(dir); err != nil {
		return nil, "", errors.Join(err, cache.Close(context.Background()))
	}
	return cache, where, nil
}

// codeFolder returns the folder within dir where wazero keeps code.
func codeFolder(dir string) (string, error) { return onlyFile(dir, "wazero-") }

// outlineSection is a custom section with the digest of the module that an outline stands
// for. It makes the runtime keep the code of different modules apart.
const outlineSection = "toolhost.outline"

// Outline returns the module m, whose encoded form is wasm, with function bodies that
// only trap. That is enough for a runtime to load the module's code and make instances.
// Checking the real bodies again would take as long as everything else.
func Outline(m *wasmbin.Module, wasm []byte) []byte {
	short := *m
	short.Codes = slices.Repeat([]wasmbin.Code{{Body: []byte{byte(wasmbin.OpUnreachable), byte(wasmbin.OpEnd)}}}, len(m.Codes))
	short.Customs = nil
	if names, named := m.Custom("name"); named { // for stack traces
		short.Customs = append(short.Customs, wasmbin.NewCustom("name", names))
	}
	digest := sha256.Sum256(wasm)
	short.Customs = append(short.Customs, wasmbin.NewCustom(outlineSection, digest[:]))
	return short.Encode()
}

// BoundsVersion is the version of the limits that are checked before a module is compiled.
const BoundsVersion = 3

// Supported reports whether wazero has a compiler for this processor. Without one, wazero
// interprets modules.
const Supported = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// Runtime names the version of wazero, and the system and the kind of processor for which
// it makes code.
var Runtime = sync.OnceValue(func() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/tetratelabs/wazero" {
				version = dep.Version
			}
		}
	}
	return version + " " + runtime.GOOS + "/" + runtime.GOARCH
})
