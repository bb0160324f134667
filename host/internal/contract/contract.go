// Package contract reads the binary of a plugin and checks it against the contract of
// package abi, without running or compiling it.
package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/tetratelabs/wazero/api"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/compiler"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

// Shape is the way in which the host calls a module.
type Shape string

// The shapes.
const (
	Reactor Shape = "reactor" // imports toolhost_v1, exports toolhost_invoke
	Command Shape = "command" // a WASI preview 1 program with _start
	Extism  Shape = "extism"  // imports extism:host/env
)

// Info describes the binary of a module, without running it.
type Info struct {
	Digest   string   `json:"digest"` // sha256 of the binary, in hex; empty if it was only scanned
	Size     int      `json:"size"`   // size of the binary, in bytes
	Shape    Shape    `json:"shape"`
	Manifest []byte   `json:"-"` // custom section toolhost.manifest, or nil
	Describe bool     `json:"describe"`
	Imports  []string `json:"imports"` // imports, each as module.name (type)
	Exports  []string `json:"exports"`
	MinBytes int64    `json:"memory_min"` // initial size of the linear memory, in bytes
	MaxBytes int64    `json:"memory_max"` // maximum size of the linear memory, in bytes; 4 GiB if the module declares none
	Script   []byte   `json:"-"`          // custom section toolhost.script, or nil
	Remedy   string   `json:"-"`          // advice for a plugin that starts up in an unsupported way; empty for others
	// For an Extism plugin: how it lists its tools, or empty; the functions that it imports
	// because it was written for another host; and its callable exports.
	MCP           MCP            `json:"mcp,omitempty"`
	HostFunctions []HostFunction `json:"-"`
	functions     map[string]bool
}

// HasFunction reports whether an Extism plugin exports a callable function with this name.
func (i *Info) HasFunction(name string) bool { return i.functions[name] }

// Signature is a comparable function type.
type Signature string

// SignatureOf returns the signature of a host function.
func SignatureOf(params, results []api.ValueType) Signature {
	return Signature(wasmbin.FuncType{Params: valTypes(params), Results: valTypes(results)}.String())
}

func valTypes(types []api.ValueType) []wasmbin.ValType {
	out := make([]wasmbin.ValType, len(types))
	for i, t := range types {
		out[i] = wasmbin.ValType(t)
	}
	return out
}

// The function types of the contract, in the notation of wasmbin.FuncType.
var (
	imports = map[string]Signature{
		abi.ImportRead:     "(i32, i32, i32) -> i32",
		abi.ImportWrite:    "(i32, i32, i32) -> i32",
		abi.ImportProgress: "(f64, f64, i32, i32) -> i32",
		abi.ImportCall:     "(i32, i32, i32, i32) -> i32",
		abi.ImportStart:    "(i32, i32, i32, i32) -> i32",
	}
	exports = map[string]Signature{
		abi.ExportDescribe:   "() -> i32",
		abi.ExportInvoke:     "() -> i32",
		abi.ExportResume:     "(i32, i32) -> i32",
		abi.ExportRestored:   "() -> ()",
		abi.ExportInitialize: "() -> ()",
		abi.ExportStart:      "() -> ()",
	}
)

// Imports holds the types of the functions that the host defines for plugins, by module
// and name, except those of the contract.
type Imports map[string]map[string]Signature

// Inspect checks a binary without compiling it. If the module breaks the contract, the
// error is a [*ModuleError].
func Inspect(wasm []byte, defined Imports) (*Info, error) {
	m, err := wasmbin.Parse(wasm)
	if err != nil {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	return check(m, &Info{Digest: Digest(wasm), Size: len(wasm)}, defined)
}

// Digest returns the SHA-256 digest of a binary, in hex.
func Digest(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// Scan checks a binary of size bytes like [Inspect], but does not read its code and data.
// Info.Digest is empty. Errors from reading the file are returned unchanged.
func Scan(file io.ReaderAt, size int64, defined Imports) (*Info, error) {
	m, err := wasmbin.Scan(file, size, abi.SectionManifest, abi.SectionScript, sectionGo)
	if malformed := (*wasmbin.Error)(nil); errors.As(err, &malformed) {
		return nil, &ModuleError{Part: "module", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return check(m, &Info{Size: int(size)}, defined)
}

// check checks a module against the contract and completes its Info.
func check(m *wasmbin.Module, info *Info, defined Imports) (*Info, error) {
	manifests := 0
	for _, c := range m.Customs {
		switch c.Name {
		case abi.SectionManifest:
			if manifests++; manifests > 1 {
				return nil, &ModuleError{"module", "", fmt.Errorf("found two custom sections %q: keep one", c.Name)}
			}
			info.Manifest = c.Data
		case abi.SectionScript:
			info.Script = c.Data
		}
	}

	if err := compiler.CountOverhead(m).Check(); err != nil {
		return nil, Blame(err)
	}
	if err := checkImports(m, info, defined); err != nil {
		return nil, err
	}
	if err := checkExports(m, info); err != nil {
		return nil, err
	}

	return info, nil
}

// sectionGo is a custom section written by Go's linker.
const sectionGo = "go:buildid"
