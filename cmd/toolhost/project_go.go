package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/toolhost/toolhost/examples/pluginbuild"
)

// golang is Go.
type golang struct{}

const modulePath = "github.com/toolhost/toolhost"

func (golang) files(name string) map[string]string {
	mod := "module " + name + "\n\ngo 1.26\n\nrequire " + modulePath + " "
	if clone := cloneOf(); clone != "" {
		mod += "v0.0.0\n\nreplace " + modulePath + " => " + clone + "\n"
	} else {
		mod += version() + "\n"
	}

	return map[string]string{
		"main.go": `package main

import (
	"strings"

	"` + modulePath + `/guest"
)

type args struct {
	Text string ` + "`json:\"text\" desc:\"Text to count\"`" + `
}

type counts struct {
	Words int ` + "`json:\"words\"`" + `
}

func count(_ *guest.Call, in args) (counts, error) {
	words := strings.Fields(in.Text)
	if len(words) == 0 {
		return counts{}, guest.Errorf("the text has no words")
	}
	return counts{len(words)}, nil
}

var plugin = guest.Plugin{
	Name: "` + name + `", Version: "1.0.0", Description: "Counts words.",
	Tools: []guest.Tool{{
		Name: "count", Description: "Counts the words of a text.", Handler: guest.Handle(count),
		Hints:    guest.Hints{Readonly: true, Idempotent: true},
		Examples: []guest.Example{{Args: args{"one two"}, Result: counts{2}}},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
`,
		"main_test.go": `package main

import (
	"testing"

	"` + modulePath + `/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }
`,
		"go.mod":     mod,
		".gitignore": "*.wasm\n",
	}
}

// cloneOf returns the clone that this program was built from, or nothing if it is
// gone.
func cloneOf() string {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(root, "guest", "doc.go")); err != nil || !filepath.IsAbs(file) || strings.Contains(filepath.ToSlash(root), "/pkg/mod/") {
		return ""
	}
	return root
}

// main also accepts a folder of a larger module.
func (golang) main(dir string) string {
	file := filepath.Join(dir, "main.go")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	folder, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return file
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return ""
		}
		folder = parent
	}
}

// compile lets the Go toolchain add the project's imports to go.mod.
func (golang) compile(ctx context.Context, dir string) ([]byte, error) {
	return pluginbuild.Compile(ctx, dir, true, "-mod=mod")
}
