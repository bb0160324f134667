package watch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A change is reported once it has settled, in the end also when it never does, and once.
func TestPoll(t *testing.T) {
	for name, test := range map[string]struct {
		found func(at time.Duration) string // what a poll finds, by time
		want  []time.Duration               // when a change is reported
	}{
		"nothing is there":   {func(time.Duration) string { return "" }, nil},
		"nothing changes":    {func(time.Duration) string { return "a" }, []time.Duration{pollEvery}},
		"one change":         {func(at time.Duration) string { return []string{"a", "b"}[at/(2*time.Second)%2] }, []time.Duration{pollEvery, 2*time.Second + pollEvery, 4*time.Second + pollEvery, 6*time.Second + pollEvery, 8*time.Second + pollEvery}},
		"a change and back":  {func(at time.Duration) string { return map[bool]string{true: "b", false: "a"}[at == 2*time.Second] }, []time.Duration{pollEvery}},
		"it changes forever": {func(at time.Duration) string { return at.String() }, []time.Duration{maxDelay}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
				defer cancel()
				began := time.Now()
				var reported []time.Duration
				Poll(ctx, func() string { return test.found(time.Since(began)) }, func() { reported = append(reported, time.Since(began)) })
				require.Equal(t, test.want, reported)
			})
		})
	}
}

// It ends with its context, also in a pause.
func TestPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var polling sync.WaitGroup
		polling.Go(func() { Poll(ctx, func() string { return "" }, nil) })
		synctest.Wait()
		cancel()
		began := time.Now()
		polling.Wait()
		require.Zero(t, time.Since(began))
	})
}

// What is described differs when the file does.
func TestDescribe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	describe := func() string {
		var text strings.Builder
		Describe(&text, file)
		return text.String()
	}

	seen := map[string]bool{describe(): true}
	for _, content := range []string{"a", "ab", ""} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.Equal(t, describe(), describe())
		require.False(t, seen[describe()], content)
		seen[describe()] = true
	}
	require.NoError(t, os.Remove(file))
	require.True(t, seen[describe()], "it is missing again")
}
