package main

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// TestMistakes makes the mistakes of authors, and compares what they are told. Each file
// of testdata/mistakes says which it makes, and is then followed in an empty folder: a
// file is written, one that ends in .hex as bytes, and a command prints what is below it.
func TestMistakes(t *testing.T) {
	fulltest.Only(t, "builds plugins in several languages")
	files, err := filepath.Glob("testdata/mistakes/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "rust_") {
				needRust(t)
			}
			makeMistakes(t, file)
		})
	}
}

// needRust skips a test where plugins in Rust cannot be built. CI has installed what it takes.
func needRust(t *testing.T) {
	lib, err := exec.Command("rustc", "--print", "target-libdir", "--target", rustTarget).Output()
	if err == nil {
		_, err = os.Stat(strings.TrimSpace(string(lib)))
	}
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("%v: install Rust from https://rustup.rs, then: rustup target add %s", err, rustTarget)
	}
	require.NoError(t, err)
}

func makeMistakes(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	file, err = filepath.Abs(file)
	require.NoError(t, err)
	dir, data := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "toolhost.yaml"), []byte("plugins: [.]\n"), 0o600))
	t.Setenv("TOOLHOST_DATA", data)
	t.Setenv("TOOLHOST_CONFIG", filepath.Join(dir, "toolhost.yaml"))
	t.Chdir(dir)

	commands := 0
	for i, part := range archive.Files {
		command, ok := strings.CutPrefix(part.Name, "$ toolhost ")
		if !ok {
			writeMistake(t, part)
			continue
		}
		commands++
		var out bytes.Buffer
		run(t.Context(), wordsOf(command), strings.NewReader(""), &out, &out)
		said := constant(strings.ReplaceAll(out.String(), dir, "/srv/agent"))
		if !*update {
			require.Equal(t, string(part.Data), said, part.Name)
		}
		archive.Files[i].Data = []byte(said)
	}
	require.NotZero(t, commands)
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
	}
}

func writeMistake(t *testing.T, f txtar.File) {
	name, coded := strings.CutSuffix(f.Name, ".hex")
	data := f.Data
	if coded {
		var err error
		data, err = hex.DecodeString(strings.ReplaceAll(string(data), "\n", ""))
		require.NoError(t, err, name)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

// wordsOf splits a command, whose arguments are in quotes if they have spaces or quotes.
func wordsOf(command string) (all []string) {
	for _, w := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(command, -1) {
		all = append(all, w[1]+w[2])
	}
	return all
}

var inconstant = regexp.MustCompile(`time=\S+|call=call_\S+|\b\d+(\.\d+)?(M|ms|µs|s| [KM]iB)\b|\b[0-9a-f]{12}\b| {2,}`)

// constant replaces what differs from one time to the next: times, ids, what calls cost.
func constant(said string) string {
	return inconstant.ReplaceAllStringFunc(said, func(s string) string {
		key, _, ok := strings.Cut(s, "=")
		switch {
		case ok:
			return key + "=…"
		case s[0] == ' ':
			return "  "
		}
		return "…"
	})
}
