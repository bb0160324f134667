package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// A stream is read until the event that tells the end; one that stops before it
// was cut off, and the last event that came whole is where to go on.
func TestReadRun(t *testing.T) {
	const begun = "id: 1:0\nevent: run\ndata: {\"status\":\"running\"}\n\n: alive\n\nid: 1:4\nevent: output\ndata: {\"attempt\":1,\"offset\":0,\"text\":\"one\\n\"}\n\n"
	for name, test := range map[string]struct {
		stream string
		done   bool
		last   string
	}{
		"whole":             {begun + "id: 1:4\nevent: end\ndata: {\"done\":true}\n\n", true, "1:4"},
		"cut off":           {begun, false, "1:4"},
		"cut off in an id":  {begun + "id: 1:8", false, "1:4"},
		"cut off in a line": {begun + "id: 1:8\nevent: output\ndata: {\"att", false, "1:4"},
		"not ended":         {begun + "id: 1:8\nevent: output\ndata: {}\n", false, "1:4"},
		"nothing":           {"", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var last string
			var text string
			run, err := readRun(io.NopCloser(strings.NewReader(test.stream)), &last, follower{
				output: func(out httpapi.Output) { text += out.Text },
			})
			require.Equal(t, test.last, last)
			if test.stream != "" {
				require.Equal(t, "one\n", text)
			}
			if test.done {
				require.NoError(t, err)
				require.True(t, run.Done)
				return
			}
			require.ErrorIs(t, err, io.EOF)
			require.Nil(t, run)
		})
	}
}

// FuzzEvent: whatever a server sends, reading it ends.
func FuzzEvent(f *testing.F) {
	f.Add([]byte("id: 1:4\nevent: output\ndata: {\"text\":\"x\"}\n\nevent: end\ndata: {}\n\n"))
	f.Add([]byte("event\ndata\nid\n\n:\n\r\n\r\n"))
	f.Add([]byte("event: run\ndata: [\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		for range len(data) + 1 {
			e, err := readEvent(r)
			if err != nil {
				var last string
				_, _ = readRun(io.NopCloser(bytes.NewReader(data)), &last, follower{})
				return
			}
			require.NotEmpty(t, e.name)
		}
		t.Fatal("more events than bytes")
	})
}
