package owned_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/owned"
)

const nobody = 65534

func chown(t *testing.T, name string) {
	if err := os.Chown(name, nobody, nobody); err != nil {
		t.Skip(err)
	}
}

func unixOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("whom a file belongs to is unknown here")
	}
}

func TestFolder(t *testing.T) {
	unixOnly(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string) string // and what to look at
		want   string
	}{
		"own":             {func(t *testing.T, dir string) string { return dir }, ""},
		"others read":     {func(t *testing.T, dir string) string { return chmod(t, dir, 0o755) }, ""},
		"a group writes":  {func(t *testing.T, dir string) string { return chmod(t, dir, 0o770) }, "can be written by others"},
		"others write":    {func(t *testing.T, dir string) string { return chmod(t, dir, 0o702) }, "can be written by others"},
		"sticky":          {func(t *testing.T, dir string) string { return chmod(t, dir, 0o777|fs.ModeSticky) }, "can be written by others"},
		"another user's":  {func(t *testing.T, dir string) string { chown(t, dir); return dir }, "belongs to the user 65534"},
		"a link":          {link, "is a link"},
		"a link, a slash": {func(t *testing.T, dir string) string { return link(t, dir) + "/" }, "is a link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			require.NoError(t, os.Mkdir(dir, 0o700))
			err := owned.Folder(c.change(t, dir))

			if c.want == "" {
				require.NoError(t, err)
				return
			}

			require.ErrorIs(t, err, owned.ErrUnsafe)
			require.ErrorContains(t, err, c.want)
		})
	}

	require.ErrorIs(t, owned.Folder(filepath.Join(t.TempDir(), "none")), fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorIs(t, owned.Folder(file), syscall.ENOTDIR)
}

// A folder is judged where links lead, and so is a link of somebody else's.
func TestBehind(t *testing.T) {
	unixOnly(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string) string // and what to look at
		want   string
	}{
		"own":                    {func(t *testing.T, dir string) string { return dir }, ""},
		"a link":                 {link, ""},
		"others write":           {func(t *testing.T, dir string) string { return chmod(t, dir, 0o777) }, "/dir can be written by others: chmod go-w "},
		"others write, sticky":   {func(t *testing.T, dir string) string { return chmod(t, dir, 0o777|fs.ModeSticky) }, "/dir can be written by others: chmod go-w "},
		"others write, a link":   {func(t *testing.T, dir string) string { return link(t, chmod(t, dir, 0o720)) }, "/dir can be written by others: chmod go-w "},
		"another user's":         {func(t *testing.T, dir string) string { chown(t, dir); return dir }, "/dir belongs to the user 65534: use one of your own"},
		"another user's, a link": {func(t *testing.T, dir string) string { chown(t, dir); return link(t, dir) }, "/dir belongs to the user 65534"},
		"another user's link": {func(t *testing.T, dir string) string {
			if err := os.Lchown(link(t, dir), nobody, nobody); err != nil {
				t.Skip(err)
			}
			return dir + ".link"
		}, "/dir.link belongs to the user 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			require.NoError(t, os.Mkdir(dir, 0o700))

			err := owned.Behind(c.change(t, dir))

			if c.want == "" {
				require.NoError(t, err)
				return
			}

			require.ErrorIs(t, err, owned.ErrUnsafe)
			require.ErrorContains(t, err, c.want)
		})
	}

	require.NoError(t, owned.Behind("/"))
	require.ErrorIs(t, owned.Behind(filepath.Join(t.TempDir(), "none")), fs.ErrNotExist)
}

// An open file is judged as it is, and so is the folder a link to it leads to:
// who can write there can put another file in its place.
func TestOpened(t *testing.T) {
	unixOnly(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, file string)
		link   bool
		want   string
	}{
		"own":                       {func(*testing.T, string) {}, false, ""},
		"own, a link":               {func(*testing.T, string) {}, true, ""},
		"others write":              {func(t *testing.T, file string) { chmod(t, file, 0o666) }, false, "file can be written by others: chmod go-w "},
		"others write, a link":      {func(t *testing.T, file string) { chmod(t, file, 0o620) }, true, " can be written by others: chmod go-w "},
		"another user's":            {func(t *testing.T, file string) { chown(t, file) }, true, " belongs to the user 65534: use one of your own"},
		"others replace it":         {func(t *testing.T, file string) { chmod(t, filepath.Dir(file), 0o777) }, true, "/dir can be written by others: chmod go-w "},
		"others add to its folder":  {func(t *testing.T, file string) { chmod(t, filepath.Dir(file), 0o777|fs.ModeSticky) }, true, ""},
		"another user's folder":     {func(t *testing.T, file string) { chown(t, filepath.Dir(file)) }, true, "/dir belongs to the user 65534"},
		"its own folder, no matter": {func(t *testing.T, file string) { chmod(t, filepath.Dir(file), 0o777) }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(in, "dir"), 0o700))
			at := filepath.Join(in, "dir", "file")
			require.NoError(t, os.WriteFile(at, nil, 0o644))
			c.change(t, at)

			if c.link {
				require.NoError(t, os.Symlink(at, filepath.Join(in, "link")))
				at = filepath.Join(in, "link")
			}

			file, err := os.Open(at)
			require.NoError(t, err)
			defer file.Close()

			err = owned.Opened(file)

			if c.want == "" {
				require.NoError(t, err)
				return
			}

			require.ErrorIs(t, err, owned.ErrUnsafe)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func chmod(t *testing.T, name string, mode fs.FileMode) string {
	require.NoError(t, os.Chmod(name, mode))
	return name
}

func link(t *testing.T, dir string) string {
	require.NoError(t, os.Symlink(dir, dir+".link"))
	return dir + ".link"
}

func TestReadFile(t *testing.T) {
	unixOnly(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o644))
	data, err := owned.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))

	for _, name := range []string{link(t, file), filepath.Dir(file), chmod(t, file, 0o666)} {
		_, err = owned.ReadFile(name)
		require.ErrorIs(t, err, owned.ErrUnsafe)
	}

	_, err = owned.ReadFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	chmod(t, file, 0o600)
	chown(t, file)
	_, err = owned.ReadFile(file)
	require.ErrorIs(t, err, owned.ErrUnsafe)
}

func TestTemp(t *testing.T) {
	unixOnly(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	_, err := owned.Temp()
	require.NoError(t, err)
	chmod(t, dir, 0o777)
	_, err = owned.Temp()
	require.ErrorIs(t, err, owned.ErrUnsafe)
	chmod(t, dir, 0o777|fs.ModeSticky)
	_, err = owned.Temp()
	require.NoError(t, err)
	chown(t, dir)
	_, err = owned.Temp()
	require.ErrorIs(t, err, owned.ErrUnsafe)
}

func TestForeign(t *testing.T) {
	unixOnly(t)
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.False(t, owned.Foreign(dir))
	require.False(t, owned.Foreign(dir+"/none"))

	chown(t, dir)
	require.True(t, owned.Foreign(dir))
	require.True(t, owned.Foreign(link(t, dir)))
	chmod(t, dir, 0o720)
	require.False(t, owned.Foreign(dir), "its group can write to it")
}
