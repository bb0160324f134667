// Package js makes plugins from JavaScript: it appends a module to the runtime that runs it.
//
// The runtime is QuickJS with a shim for the contract. build.sh builds it, and the result is
// checked in. All plugins made by this package share the runtime's compiled code.
package js

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wasmbin"
)

//go:embed runtime.wasm
var runtime []byte

//go:embed src/prelude.js
var prelude string

//go:embed src/web.js
var web string

// Files is the source of the module "node:fs/promises" that tools can import. It uses the
// folders of the plugin.
//
//go:embed src/fs.js
var Files string

// Types declares the module "toolhost" for TypeScript.
//
//go:embed toolhost.d.ts
var Types []byte

// Library is the source of the module "toolhost" that tools import.
const Library = "export const { tool, ToolError, HostError, ToolCallError, ConnectionRequired } = globalThis.toolhost;\n"

// Plugin returns a plugin with the tools that an ES module exports. The module must not
// have imports. The plugin has no manifest yet: it describes itself.
func Plugin(module []byte) []byte {
	world := strings.Replace(prelude, "/* web.js */", web, 1)
	script := fmt.Appendf(nil, "%08d%s", len(world), world)
	return wasmbin.AppendCustom(runtime, abi.SectionScript, append(script, module...))
}
