// Command copy makes the packages interp and sh next to it: the interpreter of
// mvdan.cc/sh as the module proxy has it, but for pipes within the process. Upstream has
// those for js only, and WASI has no others: os.Pipe fails there.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "mvdan.cc/sh/v3"

// copied are files of the module by the folders that they are copied to.
var copied = map[string][]string{
	"internal/interp": {
		"LICENSE", "interp/api.go", "interp/builtin.go", "interp/handler.go", "interp/help.go", "interp/os_notunix.go", "interp/os_other.go",
		"interp/runner.go", "interp/stdin_js.go", "interp/test.go", "interp/test_classic.go", "interp/trace.go", "interp/vars.go",
	},
	"internal/sh": {"LICENSE", "internal/pattern.go", "internal/sparse.go"},
}

// edits have the files of other systems build for all.
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
