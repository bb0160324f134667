package vault

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

const value = "correct-horse-battery"

func openVault(t *testing.T, s Source) (*Vault, *bytes.Buffer) {
	s.Hosts, s.Place = []string{"api.example.com"}, host.Place{Bearer: true}
	log := &bytes.Buffer{}
	v, err := New(map[string]Source{"example": s}, "", slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	return v, log
}

func unixOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions and programs of Unix")
	}
}

func TestCheck(t *testing.T) {
	hosts, place := []string{"api.example.com"}, host.Place{Bearer: true}
	require.NoError(t, Source{Env: "A", Hosts: hosts, Place: place}.Check())
	for want, s := range map[string]Source{
		"want exactly one of env, file, command and scope: user": {Hosts: hosts, Place: place},
		"want exactly one of env, file":                          {Env: "A", File: "b", Hosts: hosts, Place: place},
		"command: want a program":                                {Command: []string{""}, Hosts: hosts, Place: place},
		"want exactly one of bearer":                             {Env: "A", Hosts: hosts},
		"host":                                                   {Env: "A", Hosts: []string{"*"}, Place: place},
	} {
		require.ErrorContains(t, s.Check(), want)
	}
}

// A new value of a variable or a file applies at once.
func TestRotation(t *testing.T) {
	unixOnly(t)
	file := filepath.Join(t.TempDir(), "key")
	v, _ := openVault(t, Source{File: file})
	_, err := v.Secret(t.Context(), "example")
	require.ErrorIs(t, err, host.ErrNoSecret)

	for _, want := range []string{value, "another-value"} {
		require.NoError(t, os.WriteFile(file, []byte(want+"\n"), 0o600))
		got, err := v.Secret(t.Context(), "example")
		require.NoError(t, err)
		require.Equal(t, want, got.Value)
		require.Equal(t, []string{"api.example.com"}, got.Hosts)
	}

	v, _ = openVault(t, Source{Env: "TOOLHOST_TEST_VAULT"})
	_, err = v.Secret(t.Context(), "example")
	require.ErrorIs(t, err, host.ErrNoSecret)
	t.Setenv("TOOLHOST_TEST_VAULT", value)
	got, err := v.Secret(t.Context(), "example")
	require.NoError(t, err)
	require.Equal(t, value, got.Value)
	_, err = v.Secret(t.Context(), "other")
	require.ErrorIs(t, err, host.ErrNoSecret)
}

// linkTo makes a link to a file or a folder, in a folder of its own.
func linkTo(t *testing.T, target string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(target, link))
	return link
}

// A secret of Kubernetes is a link to a file behind a link, which is replaced to rotate it.
// The folder is open to everybody, but sticky.
func TestLinkedRotation(t *testing.T) {
	unixOnly(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	require.NoError(t, os.Symlink(filepath.Join("..data", "key"), filepath.Join(dir, "key")))
	v, log := openVault(t, Source{File: filepath.Join(dir, "key")})
	_, err := v.Secret(t.Context(), "example")
	require.ErrorIs(t, err, host.ErrNoSecret, "the link leads nowhere yet")

	for i, want := range []string{value, "another-value", "a-third-value"} {
		version := fmt.Sprint("..2026_", i)
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "key"), []byte(want), 0o400))
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprint("..2026_", i-1))))

		got, err := v.Secret(t.Context(), "example")
		require.NoError(t, err)
		require.Equal(t, want, got.Value)
	}
	require.Empty(t, log.String())
}

// A reader always gets a whole value while a link is replaced again and again.
func TestLinkedSwaps(t *testing.T) {
	unixOnly(t)
	dir := t.TempDir()
	values := []string{value, "another-value"}
	for i, one := range values {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(one), 0o600))
	}
	swap := func(i int) {
		assert.NoError(t, os.Symlink(fmt.Sprint(i%2), filepath.Join(dir, "new")))
		assert.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "key")))
	}
	swap(0)
	v, _ := openVault(t, Source{File: filepath.Join(dir, "key")})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for i := range 500 {
			swap(i)
		}
	})
	for range 500 {
		got, err := v.Secret(t.Context(), "example")
		require.NoError(t, err)
		require.Contains(t, values, got.Value)
	}
	swapping.Wait()
}

// Sources that cannot be used are refused. The agent is not told the reason, and the log
// does not contain the value.
func TestHostile(t *testing.T) {
	unixOnly(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) Source {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chmod(file, mode))
		return Source{File: file}
	}
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Symlink(write("target", value, 0o600).File, filepath.Join(open, "link")))
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, os.Symlink(write("wide", value, 0o644).File, filepath.Join(dir, "wide link")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))

	sh := func(script string) Source { return Source{Command: []string{"/bin/sh", "-c", script}} }
	for name, c := range map[string]struct {
		source Source
		log    string
	}{
		"a file that others read":    {write("read", value, 0o644), "can be read by others: chmod 600"},
		"a file that others write":   {write("written", value, 0o622), "can be written by others"},
		"a link others can replace":  {Source{File: filepath.Join(open, "link")}, "can be written by others"},
		"a link to what others read": {Source{File: filepath.Join(dir, "wide link")}, "can be read by others: chmod 600"},
		"a link to itself":           {Source{File: filepath.Join(dir, "loop")}, "too many links"},
		"a link to a folder":         {Source{File: linkTo(t, dir)}, "is not a regular file"},
		"a folder":                   {Source{File: dir}, "is not a regular file"},
		"a huge file":                {write("huge", strings.Repeat("a", 20<<10), 0o600), "longer than"},
		"two lines":                  {write("lines", value+"\r\nX-Evil: "+value, 0o600), "a line break or another control character"},
		"a value too short to mask":  {write("short", "abc", 0o600), "shorter than"},
		"a command that fails":       {sh("echo " + value + "; echo " + value + " >&2; exit 3"), "exit status 3"},
		"a command without an end":   {sh("while :; do echo " + value + "; done"), "it prints too much"},
		"a program that is missing":  {Source{Command: []string{"/nowhere/program"}}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			v, log := openVault(t, c.source)
			_, err := v.Secret(t.Context(), "example")
			require.EqualError(t, err, "it cannot be used now: the operator finds the reason in the log")
			require.Contains(t, log.String(), c.log)
			require.NotContains(t, log.String(), value)
		})
	}
}

// A command has no shell and sees no secrets of the environment, and its output is kept.
func TestCommand(t *testing.T) {
	unixOnly(t)
	t.Setenv("TOOLHOST_TOKEN", "hunter2-hunter2")
	ran := filepath.Join(t.TempDir(), "ran")
	v, _ := openVault(t, Source{Command: []string{"/bin/sh", "-c", `echo x >>"$1"; echo "value-$TOOLHOST_TOKEN-$0"`, "$HOME", ran}})
	for range 3 {
		got, err := v.Secret(t.Context(), "example")
		require.NoError(t, err)
		require.Equal(t, "value--$HOME", got.Value)
	}
	times, err := os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(times))

	v.entries["example"].kept.until = time.Time{} // its time is over
	_, err = v.Secret(t.Context(), "example")
	require.NoError(t, err)
	times, err = os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "x\nx\n", string(times))
}

// The end of a call ends the command, and is not remembered as a failure of the command.
func TestStop(t *testing.T) {
	unixOnly(t)
	v, log := openVault(t, Source{Command: []string{"/bin/sleep", "60"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := v.Secret(ctx, "example")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, log.String())
	require.Zero(t, v.entries["example"].kept)
}

// The group that root chose for a file can read it: that is how systemd and Kubernetes give
// a service its secrets.
func TestFileOfRoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(NewKey()), 0o600))
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of root")
	}
	for mode, want := range map[os.FileMode]string{0o400: "", 0o440: "", 0o640: "", 0o444: "read by others", 0o660: "written by others"} {
		require.NoError(t, os.Chmod(file, mode))
		err := Keys(file).Check()
		if want == "" {
			require.NoError(t, err, mode)
		} else {
			require.ErrorContains(t, err, want, mode)
		}
	}
}
