package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
)

// TestDev: each change of a project is built and tested.
func TestDev(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TOOLHOST_DATA", filepath.Join(t.TempDir(), "data"))
	var out testlog.Buffer
	require.Zero(t, run(t.Context(), []string{"new", "javascript", "words"}, strings.NewReader(""), &out, &out))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- run(ctx, []string{"dev", "words"}, strings.NewReader(""), &out, &out) }()
	seen := 0
	until := func(text string) string {
		t.Helper()
		for n := 0; !strings.Contains(out.String()[seen:], text); n++ {
			require.Less(t, n, 6_000, out.String()) // only what is broken gets there
			time.Sleep(10 * time.Millisecond)
		}
		said := out.String()[seen:]
		seen += len(said)
		return said
	}
	said := until("toolhost: waiting for a change in words")
	require.Contains(t, said, "words_count: Counts the words of a text.\n")
	require.Contains(t, said, `"Text to count"`)
	require.Contains(t, said, "words 1.0.0: 1 passed, 0 failed")

	file := filepath.Join("words", "tool.js")
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	// As editors do: dev may look at a file that is only half written.
	save := func(source string) {
		saved := filepath.Join(t.TempDir(), "tool.js")
		require.NoError(t, os.WriteFile(saved, []byte(source), 0o600))
		require.NoError(t, os.Rename(saved, file))
	}
	save(strings.Replace(string(source), "words: 2", "words: 3", 1))
	require.Contains(t, until("toolhost: waiting for a change in words"), `expected {"words":3}, found {"words":2}`)
	save("export const a = ;")
	require.Contains(t, until("toolhost: waiting for a change in words"), "tool.js:1:18: Unexpected")
	save(string(source))
	require.Contains(t, until("toolhost: waiting for a change in words"), "1 passed, 0 failed")

	stop()
	require.Zero(t, <-ended)
}
