package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/guest/c"
)

// inC is the language C, built by clang, or by the clang in Zig.
type inC struct{}

func (inC) files(name string) map[string]string {
	files := project("c", "%NAME%", name)
	files["toolhost.h"] = c.Header
	return files
}

func (inC) main(dir string) string { return sourceIn(dir, "tool.c") }

// compile compiles all files in the folder that end in .c. It shows the warnings of the
// compiler.
func (inC) compile(ctx context.Context, dir string) ([]byte, error) {
	compiler, err := compilerOfC(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "toolhost-c-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)

	wasm := filepath.Join(work, "tool.wasm")
	args := append(compiler[1:], wasmTarget, "-mexec-model=reactor", "-O2", "-Wall", "-Werror=return-type", "-Wno-deprecated", "-Wl,--strip-debug,-z,stack-size=65536", "-o", wasm)
	cmd := exec.CommandContext(ctx, compiler[0], append(args, sources...)...)
	cmd.WaitDelay = time.Second // for the linker
	output, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(output))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && strings.Contains(text, "undefined symbol: th__plugin"):
		return nil, &hintError{errors.New("no file has TOOLHOST_PLUGIN"), `add to one of them: TOOLHOST_PLUGIN({"name": "words", "version": "1.0.0", "description": "Counts words."})`}
	case err != nil:
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(compiler[0]), err, text)
	case text != "":
		fmt.Fprintln(os.Stderr, text)
	}
	return os.ReadFile(wasm)
}

// wasmTarget is the target for plugins: clang 14 supports it, and finds its library there on
// Debian.
const wasmTarget = "--target=wasm32-wasi"

// installC says how to install a C compiler that targets WebAssembly.
const installC = "on Debian: apt-get install clang lld wasi-libc libclang-rt-dev-wasm32; on Fedora: dnf install zig; on macOS: brew install zig"

// compilerOfC returns the command for a compiler that has everything needed for WebAssembly:
// clang, or the newest clang-NN, or the one in Zig, which includes a library.
func compilerOfC(ctx context.Context) ([]string, error) {
	missing := "clang"
	for _, name := range clangs() {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		lacks := lackedBy(ctx, path)
		if lacks == "" {
			return []string{path, "-Wl,--stack-first"}, nil // a stack overflow ends the call, and overwrites nothing
		}
		missing = fmt.Sprintf("%s, which %s needs,", lacks, name)
	}
	if zig, err := exec.LookPath("zig"); err == nil {
		return []string{zig, "cc"}, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, &hintError{errors.New(missing + " was not found"), installC}
}

var clangName = regexp.MustCompile(`^clang-(\d+)$`)

// clangs returns the names under which clang is in the PATH: first the one without a number,
// then the newest.
func clangs() []string {
	numbers := map[string]int{}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // an unreadable folder has no programs
		for _, e := range entries {
			if m := clangName.FindStringSubmatch(e.Name()); m != nil {
				numbers[e.Name()], _ = strconv.Atoi(m[1])
			}
		}
	}
	newest := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return cmp.Compare(numbers[b], numbers[a]) })
	return append([]string{"clang"}, newest...)
}

var quotedWord = regexp.MustCompile(`"([^"]*)"`)

// lackedBy names what a clang is missing to build plugins, or returns nothing. It relies on
// -###, which prints the linker's command as its last line.
func lackedBy(ctx context.Context, clang string) string {
	printed, _ := exec.CommandContext(ctx, clang, wasmTarget, "-mexec-model=reactor", "-###", "-x", "c", os.DevNull).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
	words := quotedWord.FindAllStringSubmatch(strings.ReplaceAll(lines[len(lines)-1], `\\`, `\`), -1)
	if len(words) == 0 || !strings.Contains(words[0][1], "wasm-ld") {
		return "a linker for WebAssembly"
	}
	if _, err := exec.LookPath(words[0][1]); err != nil {
		return filepath.Base(words[0][1])
	}

	for _, word := range words[1:] {
		_, err := os.Stat(word[1]) // a name without a folder was not found
		switch {
		case err == nil:
		case strings.HasSuffix(word[1], "crt1-reactor.o"):
			return "wasi-libc"
		case strings.Contains(word[1], "libclang_rt.builtins"):
			return "its runtime for wasm32"
		}
	}
	return ""
}
