// Command copy creates the packages interp and sh next to it. They are the interpreter of
// mvdan.cc/sh as distributed by the module proxy, except that pipes work within the process.
// Upstream has such pipes only for js, but WASI needs them too: os.Pipe fails there.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "mvdan.cc/sh/v3"

// copied maps the target folders to the files of the module that are copied there.
var copied = map[string][]string{
	"internal/interp": {
		"LICENSE", "interp/api.go", "interp/builtin.go", "interp/handler.go", "interp/help.go", "interp/os_notunix.go", "interp/os_other.go",
		"interp/runner.go", "interp/stdin_js.go", "interp/test.go", "interp/test_classic.go", "interp/trace.go", "interp/vars.go",
	},
	"internal/sh": {"LICENSE", "internal/pattern.go", "internal/sparse.go"},
}

// edits removes the build constraints of files for other systems, so that all systems
// build them, and changes the import path of the module's internal packages.
var edits = strings.NewReplacer(
	"//go:build js\n", "", "//go:build !unix\n", "", "//go:build !unix && !windows\n", "",
	`"`+module+`/internal"`, `internal "github.com/toolhost/toolhost/examples/tools/shell/internal/sh"`,
)

func main() {
	if err := copyAll(); err != nil {
		fmt.Fprintln(os.Stderr, "copy:", err)
		os.Exit(1)
	}
}

func copyAll() error {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Stderr = os.Stderr
	dir, err := list.Output()
	if err != nil {
		return fmt.Errorf("finding %s: %w", module, err)
	}

	for folder, files := range copied {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for _, file := range files {
			data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
			if err != nil {
				return err
			}
			name := filepath.Join(folder, strings.Replace(filepath.Base(file), "_js", "", 1))
			if err := os.WriteFile(name, []byte(edits.Replace(string(data))), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
