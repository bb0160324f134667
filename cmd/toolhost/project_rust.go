package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// rust is the language Rust, built by cargo.
type rust struct{}

// rustTarget is the compiler target for plugins.
const rustTarget = "wasm32-wasip1"

func (rust) files(name string) map[string]string {
	crate := `{ git = "https://` + modulePath + `" }`
	if clone := cloneOf(); clone != "" {
		crate = fmt.Sprintf("{ path = %q }", filepath.ToSlash(filepath.Join(clone, "guest", "rust", "toolhost")))
	}
	return project("rust", "%NAME%", name, "%CRATE%", crate)
}

func (rust) main(dir string) string {
	if sourceIn(dir, "Cargo.toml") == "" {
		return ""
	}
	return sourceIn(dir, "src/lib.rs")
}

// compile makes cargo build the project into a separate folder, so that the folder contains
// only one module.
func (rust) compile(ctx context.Context, dir string) ([]byte, error) {
	target, err := filepath.Abs(filepath.Join(dir, "target"))
	if err != nil {
		return nil, err
	}
	modules := filepath.Join(target, rustTarget, "release", "*.wasm")
	if err := removeAll(modules); err != nil { // built from crates that the project had before
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "cargo", "build", "--release", "--quiet", "--target", rustTarget, "--target-dir", target)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second // for the compilers that it started
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	err = cmd.Run()
	text := strings.TrimSpace(output.String())
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return nil, &hintError{errors.New("cargo was not found"), "install Rust from https://rustup.rs, then: rustup target add " + rustTarget}
	case err != nil && strings.Contains(text, "`"+rustTarget+"` target may not be installed"):
		return nil, &hintError{errors.New("there is no standard library of Rust for " + rustTarget), "rustup target add " + rustTarget}
	case err != nil:
		return nil, fmt.Errorf("cargo build: %w\n%s", err, text)
	}

	made, err := filepath.Glob(modules)
	if err == nil && len(made) != 1 {
		err = &hintError{fmt.Errorf("cargo has built %s of %s, expected one", plural(len(made), "module"), dir), `a project is one crate; Cargo.toml has crate-type = ["cdylib"] below [lib]`}
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(made[0])
}

// removeAll removes the files that match a pattern.
func removeAll(pattern string) error {
	found, err := filepath.Glob(pattern)
	for _, file := range found {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
