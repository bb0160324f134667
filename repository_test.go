package toolhost_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// manifests are the files that name dependencies, by what Dependabot calls their kind.
var manifests = map[string]string{
	"go.mod": "gomod", "package.json": "npm", "Cargo.lock": "cargo", "Dockerfile": "docker", "compose.yaml": "docker-compose",
	"requirements.txt": "pip", "pyproject.toml": "pip",
}

// TestDependabot: each folder with dependencies is kept up to date, and none is named that
// is gone.
func TestDependabot(t *testing.T) {
	text, err := os.ReadFile(".github/dependabot.yml")
	require.NoError(t, err)
	var file struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	named := map[string][]string{}
	for _, u := range file.Updates {
		named[u.Ecosystem] = append(named[u.Ecosystem], u.Directories...)
	}

	there := map[string][]string{"github-actions": {"/"}}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := e.Name(); e.IsDir() && name != "." && (base[0] == '.' || base == "testdata" || base == "node_modules" || base == "dist" || base == "target") {
			return fs.SkipDir
		}
		if kind, ok := manifests[e.Name()]; ok {
			there[kind] = append(there[kind], path.Join("/", path.Dir(name)))
		}
		return nil
	}))
	require.Len(t, named, len(there))
	for kind, folders := range there {
		require.ElementsMatch(t, folders, named[kind], kind)
	}
}

// TestPinnedActions: a workflow uses actions of a commit, not of a tag that can move.
func TestPinnedActions(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	uses, pinned := regexp.MustCompile(`uses: *(.*)`), regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v[\d.]+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, pinned, m[1], file)
		}
	}
}
