// Package command builds the command toolhost for benchmarks that run it.
package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Build builds the command of the module that this one replaces.
func Build(ctx context.Context, out string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/toolhost/toolhost").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", out, "./cmd/toolhost")
	build.Dir, build.Stderr = strings.TrimSpace(string(root)), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building toolhost: %w", err)
	}
	return nil
}
