package codecache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	keyA = "0123456789abcdef0123456789abcdef"
	keyB = "fedcba9876543210fedcba9876543210"
)

func put(t *testing.T, f *folder, key, name, content string) string {
	t.Helper()
	from := filepath.Join(f.dir, "new")
	require.NoError(t, os.WriteFile(from, []byte(content), 0o600))
	require.NoError(t, f.put(key, stored{from, name}))
	sum, err := Checksum(strings.NewReader(content))
	require.NoError(t, err)
	return filepath.Join(f.entry(key), name+"-"+sum)
}

// TestFolderLists: an entry has the last file of each name, and only whole ones.
func TestFolderLists(t *testing.T) {
	f, err := openFolder(t.TempDir(), 1<<20)
	require.NoError(t, err)
	require.Empty(t, f.list(keyA))

	put(t, f, keyA, "module", "first")
	module, code := put(t, f, keyA, "module", "second"), put(t, f, keyA, "abc", "code")
	require.ElementsMatch(t, []stored{{module, "module"}, {code, "abc"}}, f.list(keyA))

	require.NoError(t, os.WriteFile(code, []byte("code!"), 0o600))
	require.Equal(t, []stored{{module, "module"}}, f.list(keyA))
	require.NoFileExists(t, code)

	require.NoError(t, os.Chmod(module, 0o666))
	require.Empty(t, f.list(keyA), "others can have written it")
	require.NoFileExists(t, module)
}

// TestFolderKeepsWhatItCannotRead: it may be whole, and readable in a moment.
func TestFolderKeepsWhatItCannotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read everything")
	}
	f, err := openFolder(t.TempDir(), 1<<20)
	require.NoError(t, err)
	file := put(t, f, keyA, "module", "content")
	require.NoError(t, os.Chmod(file, 0))
	require.Empty(t, f.list(keyA))
	require.NoError(t, os.Chmod(file, 0o600))
	require.Len(t, f.list(keyA), 1)
}

// TestFolderIsBounded: the least recently used entry is removed, and nothing that
// is not an entry.
func TestFolderIsBounded(t *testing.T) {
	f, err := openFolder(t.TempDir(), 10)
	require.NoError(t, err)
	other := filepath.Join(f.entries, "thesis")
	require.NoError(t, os.Mkdir(other, 0o700))
	put(t, f, keyA, "module", "123456")
	put(t, f, keyB, "module", "123456")
	old := time.Now().Add(-time.Hour)
	for _, dir := range []string{f.entry(keyA), f.entry(keyB), other} {
		require.NoError(t, os.Chtimes(dir, old, old))
	}

	f.used(keyA)
	f.bound()
	require.Len(t, f.list(keyA), 1)
	require.Empty(t, f.list(keyB))
	require.DirExists(t, other)
}

// TestRemoveAbandoned: a staging directory goes when nobody has used it for a day.
func TestRemoveAbandoned(t *testing.T) {
	in := t.TempDir()
	dead, used := filepath.Join(in, "toolhost-1"), filepath.Join(in, "toolhost-2")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "new-7"), 0o700))
	require.NoError(t, os.Mkdir(used, 0o700))
	old := time.Now().Add(-stagingAge)
	require.NoError(t, os.Chtimes(dead, old, old))

	removeAbandoned(in)
	require.NoDirExists(t, dead)
	require.DirExists(t, used)
}
