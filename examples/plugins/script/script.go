// Package script contains the plugin exec, whose only tool runs scripts that call other
// tools. It needs the grants "clock" and "ask", and the grant "tools" with ["*"].
//
// The module is built from src and QuickJS by build.sh. The built module is checked in.
package script

import "embed"

// FS is a folder that contains the plugin. It can be passed to a registry as one of its
// folders.
//
//go:embed exec.wasm
var FS embed.FS
