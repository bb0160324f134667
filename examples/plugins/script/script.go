// Package script has the plugin exec, whose one tool runs scripts that call other tools.
// It takes the grants clock, ask, and tools: ["*"].
//
// The module is built by build.sh from src and from QuickJS, and
// checked in as it was built.
package script

import "embed"

// FS is a folder with the plugin. It can be one of the folders that a registry reads.
//
//go:embed exec.wasm
var FS embed.FS
