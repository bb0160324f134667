// Package python contains the runtime of plugins in Python: CPython 3.13 as a module of
// toolhost_v1, with its standard library and the SDK (src/toolhost). build.sh builds it. A
// plugin is this runtime with a script in a custom section. The package has 4 MB of data: only
// programs that build plugins should import it.
package python

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

//go:embed python.wasm.gz
var compressed []byte

// decompress runs once, and takes about 60 ms.
var decompress = sync.OnceValues(func() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
})

// Runtime returns the runtime without a script, a module of 12 MB. Callers share it and
// must not change it.
func Runtime() []byte {
	wasm, err := decompress()
	if err != nil {
		panic(fmt.Errorf("python.wasm.gz: %w", err)) // part of the program
	}
	return wasm
}

// Plugin returns the plugin of a project: the runtime with the project's script, as
// [Script] makes it. It has no manifest yet; the plugin describes itself.
func Plugin(project fs.FS) ([]byte, error) {
	script, err := Script(project)
	if err != nil {
		return nil, err
	}
	return wasmbin.AppendCustom(Runtime(), abi.SectionScript, script), nil
}
