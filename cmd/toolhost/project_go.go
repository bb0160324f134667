package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/toolhost/toolhost/examples/pluginbuild"
)

// golang is the language Go.
type golang struct{}

const modulePath = "github.com/toolhost/toolhost"

func (golang) files(name string) map[string]string {
	required := version()
	if clone := cloneOf(); clone != "" {
		required = "v0.0.0\n\nreplace " + modulePath + " => " + clone
	}
	return project("go", "%NAME%", name, "%MODULE%", modulePath, "%VERSION%", required)
}

// cloneOf returns the folder of the clone from which this program was built, or
// nothing if it is gone.
func cloneOf() string {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(root, "guest", "doc.go")); err != nil || !filepath.IsAbs(file) || strings.Contains(filepath.ToSlash(root), "/pkg/mod/") {
		return ""
	}
	return root
}

// main also accepts a folder inside a larger module.
func (golang) main(dir string) string {
	file := sourceIn(dir, "main.go")
	folder, err := filepath.Abs(dir)
	if file == "" || err != nil {
		return ""
	}
	for sourceIn(folder, "go.mod") == "" {
		parent := filepath.Dir(folder)
		if parent == folder {
			return ""
		}
		folder = parent
	}
	return file
}

// compile lets the Go toolchain add to go.mod and go.sum what the project and its
// tests import.
func (golang) compile(ctx context.Context, dir string) ([]byte, error) {
	list := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-test", ".")
	list.Dir, list.WaitDelay = dir, time.Second // for the go commands it has started
	list.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	_ = list.Run() // the build reports what matters to the plugin

	return pluginbuild.Compile(ctx, dir, true, "-mod=mod")
}
