package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed workloads/*.wasm
var files embed.FS

// loader reads workload modules. The Go one is built when it is first needed.
type loader struct {
	goWasm []byte
}

// read returns the module of a file.
func (l *loader) read(file string) ([]byte, error) {
	if file != "go" {
		return files.ReadFile("workloads/" + file + ".wasm")
	}
	if l.goWasm == nil {
		wasm, err := buildGo()
		if err != nil {
			return nil, err
		}
		l.goWasm = wasm
	}
	return l.goWasm, nil
}

// buildGo builds the workloads in Go, from the current directory.
func buildGo() ([]byte, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "go.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, "./workloads/go")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build workloads/go, from the directory bench: %w\n%s", err, msg)
	}
	return os.ReadFile(out)
}
