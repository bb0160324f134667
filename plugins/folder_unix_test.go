//go:build unix

package plugins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nothing is loaded that others than this user could have written, and what is
// said names what to fix. A folder is judged where links lead.
func TestFoldersOthersCanWriteTo(t *testing.T) {
	const file = "/plugins/p.wasm"
	chmod := func(mode os.FileMode, name string) func(*testing.T, string) {
		return func(t *testing.T, root string) { require.NoError(t, os.Chmod(root+name, mode)) }
	}
	chown := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			if err := os.Lchown(root+name, 4711, -1); err != nil {
				t.Skip(err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, root string)
		at     string // of the problem
		want   string // ROOT is where the folders are
	}{
		{"own", func(*testing.T, string) {}, "", ""},
		{"a folder for all", chmod(0o777, "/plugins"), "/plugins", "no plugin is loaded from the folder: unsafe: ROOT/plugins can be written by others: chmod go-w ROOT/plugins, after you have removed what others put there"},
		{"a folder for all, sticky", chmod(0o777|os.ModeSticky, "/plugins"), "/plugins", "chmod go-w ROOT/plugins,"},
		{"a folder of a group", chmod(0o775, "/plugins"), "/plugins", "chmod go-w ROOT/plugins,"},
		{"a folder of another user", chown("/plugins"), "/plugins", "no plugin is loaded from the folder: unsafe: ROOT/plugins belongs to the user 4711: use one of your own"},
		{"a link to a folder for all", func(t *testing.T, root string) {
			require.NoError(t, os.Rename(root+"/plugins", root+"/real"))
			require.NoError(t, os.Symlink("real", root+"/plugins"))
			require.NoError(t, os.Chmod(root+"/real", 0o757))
		}, "/plugins", "chmod go-w ROOT/real,"},
		{"a link of another user", func(t *testing.T, root string) {
			require.NoError(t, os.Rename(root+"/plugins", root+"/real"))
			require.NoError(t, os.Symlink("real", root+"/plugins"))
			chown("/plugins")(t, root)
		}, "/plugins", "ROOT/plugins belongs to the user 4711"},
		{"a file for all", chmod(0o666, file), file, "unsafe: ROOT" + file + " can be written by others: chmod go-w ROOT" + file + ", after you have checked it"},
		{"a file of another user", chown(file), file, "unsafe: ROOT" + file + " belongs to the user 4711: use one of your own"},
		{"a link to where others replace it", func(t *testing.T, root string) {
			require.NoError(t, os.Mkdir(root+"/build", 0o700))
			require.NoError(t, os.Rename(root+file, root+"/build/p.wasm"))
			require.NoError(t, os.Symlink("../build/p.wasm", root+file))
			require.NoError(t, os.Chmod(root+"/build", 0o777))
		}, file, "chmod go-w ROOT/build,"},
		{"a manifest for all", func(t *testing.T, root string) {
			write(t, root+file, unsealed())
			write(t, root+"/plugins/p.toolhost.yaml", []byte(sidecarYAML))
			require.NoError(t, os.Chmod(root+"/plugins/p.toolhost.yaml", 0o622))
		}, file, "p.toolhost.yaml: unsafe: ROOT/plugins/p.toolhost.yaml can be written by others"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			write(t, root+file, sealed(named("p")))
			test.change(t, root)

			r := openWith(t, newHost(t), Config{Folders: []Folder{Dir(root + "/plugins")}})

			if test.want == "" {
				require.Equal(t, []string{"p"}, toolNames(r))
				require.Empty(t, problems(r))
				return
			}

			require.Empty(t, toolNames(r))
			require.Len(t, problems(r), 1)
			require.Equal(t, root+test.at, r.Problems()[0].File)
			require.Contains(t, problems(r)[0], strings.ReplaceAll(test.want, "ROOT", root))
		})
	}
}
