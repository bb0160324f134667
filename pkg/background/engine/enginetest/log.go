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

	"github.com/toolhost/toolhost/pkg/background/engine"
)

func logBothEnds(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	require.Empty(t, read(t, e, "bg_a"), "before the start")
	lease := started(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("hello ")))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world")))
	require.Equal(t, "hello world", read(t, e, "bg_a"))
	require.NoError(t, lease.Append(t.Context(), 6, []byte("world!")), "an append that was repeated")
	require.Equal(t, "hello world!", read(t, e, "bg_a"))

	tail := strings.Repeat("t", outputCap/4)
	require.NoError(t, lease.Append(t.Context(), 1000, []byte(tail)))
	complete(t, lease, engine.StatusSucceeded)
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

func logNewAttempt(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	require.NoError(t, started(t, e, "bg_a").Append(t.Context(), 0, []byte("first attempt")))
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	chunk, err := e.Tail(t.Context(), "bg_a", 0, 100)
	require.NoError(t, err)
	require.Equal(t, 1, chunk.Attempt)
	next := started(t, e, "bg_a")
	require.Empty(t, read(t, e, "bg_a"))
	require.NoError(t, next.Append(t.Context(), 0, []byte("second")))
	require.Equal(t, "second", read(t, e, "bg_a"))
	chunk, err = e.Tail(t.Context(), "bg_a", 0, 100)
	require.NoError(t, err)
	require.Equal(t, 2, chunk.Attempt)
}

// logPieces appends far more than the log keeps, in pieces of many sizes.
func logPieces(t *testing.T, e *store) {
	for _, size := range []int{1, 7, outputCap / 4, outputCap - 1, outputCap, 3 * outputCap, 50 * outputCap} {
		id := fmt.Sprintf("bg_%d", size)
		submit(t, e, id, "s")
		lease := started(t, e, id)
		var wrote []byte
		for i := 0; len(wrote) < 20*outputCap; i++ {
			piece := bytes.Repeat([]byte{byte('a' + i%26)}, size)
			require.NoError(t, lease.Append(t.Context(), int64(len(wrote)), piece))
			wrote = append(wrote, piece...)
			live, err := e.Tail(t.Context(), id, -outputCap/4, outputCap)
			require.NoError(t, err)
			require.EqualValues(t, len(wrote), live.End)
			require.Equal(t, string(wrote[live.Offset:]), string(live.Data))
			require.True(t, len(live.Data) == min(outputCap/4, len(wrote)), "the last quarter is there: %d", len(live.Data))
		}
		complete(t, lease, engine.StatusSucceeded)
		head, tail := string(wrote[:outputCap/4*3]), string(wrote[len(wrote)-outputCap/4:])
		want := fmt.Sprintf("%s\n[system] %d bytes omitted\n%s", head, len(wrote)-outputCap, tail)
		require.Equal(t, want, artifact(t, e, id, engine.OutputLog))
		require.Equal(t, head, read(t, e, id))
		chunk, err := e.Tail(t.Context(), id, int64(len(head)), outputCap)
		require.NoError(t, err)
		require.Equal(t, tail, string(chunk.Data))
		require.EqualValues(t, len(wrote)-len(tail), chunk.Offset)
	}
}

func logCharacters(t *testing.T, e *store) {
	for shift := range 4 {
		id := fmt.Sprintf("bg_%d", shift)
		submit(t, e, id, "s")
		lease := started(t, e, id)
		wrote := strings.Repeat("x", shift) + strings.Repeat("😀", 100)
		for i := 0; i < len(wrote); i += 5 {
			require.NoError(t, lease.Append(t.Context(), int64(i), []byte(wrote[i:min(len(wrote), i+5)])))
		}
		for range 2 { // live, and ended
			head := read(t, e, id)
			require.True(t, utf8.ValidString(head))
			require.True(t, strings.HasPrefix(wrote, head))
			require.Greater(t, len(head), outputCap/4*3-utf8.UTFMax)
			chunk, err := e.Tail(t.Context(), id, int64(len(head)), 1<<20)
			require.NoError(t, err)
			require.True(t, utf8.Valid(chunk.Data))
			require.Equal(t, wrote[chunk.Offset:], string(chunk.Data))
			require.Greater(t, len(chunk.Data), outputCap/4-utf8.UTFMax)
			if !get(t, e, id).Status.Terminal() {
				complete(t, lease, engine.StatusSucceeded)
			}
		}
		require.True(t, utf8.ValidString(artifact(t, e, id, engine.OutputLog)))
	}
}

func artifacts(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	require.NoError(t, lease.Append(t.Context(), 0, []byte("hello world")))
	code := 0
	end := engine.End{Summary: "fine", Result: json.RawMessage(`{"n":[1,2]}`), Content: json.RawMessage(`["seen"]`), ExitCode: &code, FinishedAt: time.Now()}
	run, err := lease.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{OutputBytes: 11}, end)
	require.NoError(t, err)
	require.Empty(t, run.ArtifactError)

	var envelope engine.Envelope
	require.NoError(t, json.Unmarshal([]byte(artifact(t, e, "bg_a", engine.ResultJSON)), &envelope))
	want, err := whole(t, e, "bg_a").ResultFile()
	require.NoError(t, err)
	require.Equal(t, string(want), artifact(t, e, "bg_a", engine.ResultJSON))
	require.JSONEq(t, `{"n":[1,2]}`, string(envelope.Result))
	require.JSONEq(t, `["seen"]`, string(envelope.Content))
	require.EqualValues(t, 11, envelope.OutputBytes)

	file, err := e.Open(t.Context(), "bg_a", engine.OutputLog)
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

func artifactsMissing(t *testing.T, e *store) {
	missing := func(name string) {
		t.Helper()
		_, err := e.Open(t.Context(), "bg_a", name)
		require.ErrorIs(t, err, engine.ErrNotFound)
	}
	submit(t, e, "bg_a", "s")
	missing(engine.OutputLog)
	lease := started(t, e, "bg_a")
	missing(engine.OutputLog)
	missing(engine.ResultJSON)
	complete(t, lease, engine.StatusSucceeded)
	require.Empty(t, artifact(t, e, "bg_a", engine.OutputLog))
	for _, name := range []string{"", "other", "../bg_a/output.log", "/etc/passwd"} {
		missing(name)
	}
	_, err := e.Prune(t.Context(), engine.Retention{Notices: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	missing(engine.OutputLog)
}
