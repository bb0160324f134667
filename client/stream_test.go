package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

const begun = "id: 1:0\nevent: run\ndata: {\"status\":\"running\"}\n\n: alive\n\nid: 1:4\nevent: output\ndata: {\"attempt\":1,\"offset\":0,\"text\":\"one\\n\"}\n\n"

// A stream is read until its last event. A stream that stops before that was cut off, and
// continues after the last complete event.
func TestRead(t *testing.T) {
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
			var last, text string
			run, err := Follower{Output: func(out wire.Output) { text += out.Text }}.read(strings.NewReader(test.stream), &last)

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
		n := 0
		for e, err := range events(bytes.NewReader(data)) {
			if err != nil {
				break
			}
			require.NotEmpty(t, e.name)
			n++
		}
		require.LessOrEqual(t, n, len(data))

		var last string
		_, _ = Follower{}.read(bytes.NewReader(data), &last)
	})
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that is restarted is waited for, and the output continues after the
// last event. A server that was never there is not waited for.
func TestFollowOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		answers := []string{begun, "", "", "event: end\ndata: {\"done\":true}\n\n"}
		c, err := New("localhost:1", Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.Header.Get("Last-Event-ID"))
			next := answers[0]
			if answers = answers[1:]; next == "" {
				return nil, errors.New("connection reset")
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(next)), Request: r}, nil
		})})
		require.NoError(t, err)

		away := 0
		run, err := c.Follow(t.Context(), "bg_x", Follower{Away: func(error) { away++ }})
		require.NoError(t, err)
		require.True(t, run.Done)
		require.Equal(t, []string{"", "1:4", "1:4", "1:4"}, asked)
		require.Equal(t, 1, away)

		answers = []string{"", ""}
		_, err = c.Follow(t.Context(), "bg_x", Follower{})
		var lost *Unreachable
		require.ErrorAs(t, err, &lost)
		require.Len(t, answers, 1)
	})
}

// A server that stays away is given up on.
func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, lost := time.Now(), &Unreachable{Address: "here"}
		var retry Retry
		require.ErrorIs(t, retry.Wait(t.Context(), lost), lost, "it was never there")

		retry.Reached()
		var err error
		for err == nil {
			err = retry.Wait(t.Context(), lost)
		}
		require.ErrorIs(t, err, lost)
		require.InDelta(t, 120, time.Since(began).Seconds(), 1)

		retry.Reached()
		require.NoError(t, retry.Wait(t.Context(), &wire.Problem{Code: wire.CodeClosing}))
		refused := &wire.Problem{Code: wire.CodeNotFound}
		require.ErrorIs(t, retry.Wait(t.Context(), refused), refused)
	})
}
