package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
)

func logBothEnds(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.Empty(t, read(t, e, "bg_a"), "before the start")
	lease := claimed(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("hello ")))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world")))
	require.Equal(t, "hello world", read(t, e, "bg_a"))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world!")), "an append that was repeated")
	require.Equal(t, "hello world!", read(t, e, "bg_a"))

	tail := strings.Repeat("t", outputCap/4)
	require.NoError(t, lease.Append(t.Context(), 1000, []byte(tail)))
	complete(t, lease, background.StatusSucceeded)
	for _, c := range []struct {
		offset int64
		max    int
		from   int64
		want   string
	}{
		{0, 1 << 20, 0, "hello world!"},
		{6, 3, 6, "wor"},
		{12, 1 << 20, 1000, tail},
		{500, 2, 1000, "tt"},
		{1000, 1 << 20, 1000, tail},
		{1000 + outputCap/4, 10, 1000 + outputCap/4, ""},
		{9999, 10, 1000 + outputCap/4, ""},
		{-3, 10, 1000 + outputCap/4 - 3, "ttt"},
		{-1 << 20, 1 << 20, 1000, tail},
	} {
		chunk, err := e.Tail(t.Context(), "bg_a", c.offset, c.max)
		require.NoError(t, err)
		require.Equal(t, c.want, string(chunk.Data), "%+v", c)
		require.Equal(t, c.from, chunk.Offset, "%+v", c)
		require.EqualValues(t, 1000+outputCap/4, chunk.End)
	}
}

func logNewAttempt(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	require.NoError(t, claimed(t, e, "bg_a").Append(t.Context(), 0, []byte("first attempt")))
	time.Sleep(background.LeaseTTL)
	next := claimed(t, e, "bg_a")
	require.Empty(t, read(t, e, "bg_a"))
	require.NoError(t, next.Append(t.Context(), 0, []byte("second")))
	require.Equal(t, "second", read(t, e, "bg_a"))
}

// logPieces appends far more than the log keeps, in pieces of many sizes.
func logPieces(t *testing.T, e background.Engine) {
	for _, size := range []int{1, 7, outputCap / 4, outputCap - 1, outputCap, 3 * outputCap, 50 * outputCap} {
		id := fmt.Sprintf("bg_%d", size)
		submit(t, e, id, "s")
		lease := claimed(t, e, id)
		var whole []byte
		for i := 0; len(whole) < 20*outputCap; i++ {
			piece := bytes.Repeat([]byte{byte('a' + i%26)}, size)
			require.NoError(t, lease.Append(t.Context(), int64(len(whole)), piece))
			whole = append(whole, piece...)
			live, err := e.Tail(t.Context(), id, -outputCap/4, outputCap)
			require.NoError(t, err)
			require.EqualValues(t, len(whole), live.End)
			require.Equal(t, string(whole[live.Offset:]), string(live.Data))
			require.True(t, len(live.Data) == min(outputCap/4, len(whole)), "the last quarter is there: %d", len(live.Data))
		}
		complete(t, lease, background.StatusSucceeded)
		head, tail := string(whole[:outputCap/4*3]), string(whole[len(whole)-outputCap/4:])
		want := fmt.Sprintf("%s\n[system] %d bytes omitted\n%s", head, len(whole)-outputCap, tail)
		require.Equal(t, want, artifact(t, e, id, background.OutputLog))
		require.Equal(t, head, read(t, e, id))
		chunk, err := e.Tail(t.Context(), id, int64(len(head)), outputCap)
		require.NoError(t, err)
		require.Equal(t, tail, string(chunk.Data))
		require.EqualValues(t, len(whole)-len(tail), chunk.Offset)
	}
}

func logCharacters(t *testing.T, e background.Engine) {
	for shift := range 4 {
		id := fmt.Sprintf("bg_%d", shift)
		submit(t, e, id, "s")
		lease := claimed(t, e, id)
		whole := strings.Repeat("x", shift) + strings.Repeat("😀", 100)
		for i := 0; i < len(whole); i += 5 {
			require.NoError(t, lease.Append(t.Context(), int64(i), []byte(whole[i:min(len(whole), i+5)])))
		}
		for range 2 { // live, and ended
			head := read(t, e, id)
			require.True(t, utf8.ValidString(head))
			require.True(t, strings.HasPrefix(whole, head))
			require.Greater(t, len(head), outputCap/4*3-utf8.UTFMax)
			chunk, err := e.Tail(t.Context(), id, int64(len(head)), 1<<20)
			require.NoError(t, err)
			require.True(t, utf8.Valid(chunk.Data))
			require.Equal(t, whole[chunk.Offset:], string(chunk.Data))
			require.Greater(t, len(chunk.Data), outputCap/4-utf8.UTFMax)
			if !get(t, e, id).Status.Terminal() {
				complete(t, lease, background.StatusSucceeded)
			}
		}
		require.True(t, utf8.ValidString(artifact(t, e, id, background.OutputLog)))
	}
}

func artifacts(t *testing.T, e background.Engine) {
	submit(t, e, "bg_a", "s")
	lease := claimed(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("hello world")))
	code := 0
	end := background.End{Summary: "fine", Result: json.RawMessage(`{"n":[1,2]}`), Content: json.RawMessage(`["seen"]`), ExitCode: &code, FinishedAt: time.Now()}
	run, err := lease.Complete(t.Context(), background.StatusSucceeded, background.Beat{OutputBytes: 11}, end)
	require.NoError(t, err)
	require.Empty(t, run.ArtifactError)

	var envelope background.Envelope
	require.NoError(t, json.Unmarshal([]byte(artifact(t, e, "bg_a", background.ResultJSON)), &envelope))
	want, err := json.Marshal(run.Envelope())
	require.NoError(t, err)
	got, err := json.Marshal(envelope)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
	require.EqualValues(t, 11, envelope.OutputBytes)

	file, err := e.Open(t.Context(), "bg_a", background.OutputLog)
	require.NoError(t, err)
	p := make([]byte, 5)
	_, err = file.ReadAt(p, 6)
	require.NoError(t, err)
	require.Equal(t, "world", string(p))
	_, err = file.Seek(-3, io.SeekEnd)
	require.NoError(t, err)
	rest, err := io.ReadAll(file)
	require.NoError(t, err)
	require.Equal(t, "rld", string(rest))
	require.NoError(t, file.Close())
}

func artifactsMissing(t *testing.T, e background.Engine) {
	missing := func(name string) {
		t.Helper()
		_, err := e.Open(t.Context(), "bg_a", name)
		require.ErrorIs(t, err, background.ErrNotFound)
	}
	submit(t, e, "bg_a", "s")
	missing(background.OutputLog)
	lease := claimed(t, e, "bg_a")
	missing(background.OutputLog)
	missing(background.ResultJSON)
	complete(t, lease, background.StatusSucceeded)
	require.Empty(t, artifact(t, e, "bg_a", background.OutputLog))
	for _, name := range []string{"", "other", "../bg_a/output.log", "/etc/passwd"} {
		missing(name)
	}
	_, err := e.Prune(t.Context(), background.Retention{Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	missing(background.OutputLog)
}
