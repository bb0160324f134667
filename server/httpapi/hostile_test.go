package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// begin sends the beginning of a request and nothing more.
func (f *fixture) begin(text string) io.ReadWriteCloser {
	f.t.Helper()
	conn := f.dial("tcp")
	_, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n"))
	require.NoError(f.t, err)
	return conn
}

// A client that never ends its request loses its connection.
func TestSlowRequests(t *testing.T) {
	for name, test := range map[string]struct {
		text  string
		limit time.Duration
		want  string // of the answer; "": none
	}{
		"no request at all": {"", 11 * time.Second, ""},
		"half a head":       {"POST /v1/calls HTTP/1.1\nHost: localhost\n", 11 * time.Second, ""},
		"no body":           {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 9\n\n", 21 * time.Second, "408 "},
		"half a body":       {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 9\n\n{\"to", 21 * time.Second, "408 "},
		"half a chunk":      {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n9\n{\"to", 21 * time.Second, "408 "},
		"a body of a GET":   {"GET /v1/nowhere HTTP/1.1\nHost: localhost\nContent-Length: 9\n\n", 21 * time.Second, "404 "},
		"a body refused":    {"POST /v1/calls HTTP/1.1\nHost: elsewhere\nContent-Length: 9\n\n", 2 * time.Second, "403 "},
		"OPTIONS of all":    {"OPTIONS * HTTP/1.1\nHost: localhost\nContent-Length: 9\n\n", 21 * time.Second, "404 "},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "echo")
				began := time.Now()
				conn := f.begin(test.text)
				answer, _ := io.ReadAll(conn) // until the server closes the connection
				require.LessOrEqual(t, time.Since(began), test.limit)
				require.True(t, strings.HasPrefix(string(answer), strings.TrimSuffix("HTTP/1.1 "+test.want, "HTTP/1.1 ")), "%s", answer)
				f.ask("POST", "/v1/calls", `{"tool":"echo"}`) // others are served
			})
		})
	}
}

// A head that is too large is refused without being read.
func TestHugeHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		conn := f.dial("tcp")
		go func() {
			_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 1<<20))
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	})
}

// A body that is too large is refused, whether or not its size was announced.
func TestHugeBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		large := `{"tool":"` + strings.Repeat("x", 9<<20) + `"}`
		conn := f.dial("tcp")
		req := newRequest(t, "POST", "/v1/calls", large)
		req.ContentLength = -1
		go func() { _ = req.Write(conn) }() // the server does not take it all
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	})
}

// A client that does not read the answers to its requests loses its connection, and its
// slot is free again.
func TestStalledReaders(t *testing.T) {
	for name, path := range map[string]string{
		"events":          "/v1/events",
		"followed output": "/v1/runs/{id}/output",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "chatty")
				id := f.spawn("chatty")
				synctest.Wait()
				f.begin("GET " + strings.ReplaceAll(path, "{id}", id) + " HTTP/1.1\nHost: localhost\nToolhost-Session: default\nAccept: text/event-stream\n\n")
				synctest.Wait()
				require.EqualValues(t, 1, f.ask("GET", "/v1/stats", "")["open_answers"])
				time.Sleep(time.Minute)
				require.EqualValues(t, 0, f.ask("GET", "/v1/stats", "")["open_answers"])
				require.Equal(t, "succeeded", f.ask("GET", "/v1/runs/"+id, "")["status"]) // the run was not held up
			})
		})
	}
}

// A client that leaves while it waits frees what it held at once.
func TestLeavingClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "sleeper")
		id := f.spawn("sleeper")
		for _, path := range []string{"/v1/runs/" + id + "?wait=9m", "/v1/events", "/v1/runs/" + id + "/output"} {
			conn := f.begin("GET " + path + " HTTP/1.1\nHost: localhost\nToolhost-Session: default\nAccept: text/event-stream\n\n")
			synctest.Wait()
			require.EqualValues(t, 1, f.ask("GET", "/v1/stats", "")["open_answers"], path)
			require.NoError(t, conn.Close())
			synctest.Wait()
			require.EqualValues(t, 0, f.ask("GET", "/v1/stats", "")["open_answers"], path)
		}
		require.Equal(t, "running", f.ask("GET", "/v1/runs/"+id, "")["status"])
		f.ask("POST", "/v1/runs/"+id+"/stop", `{"force":true}`)
	})
}

// A call ends when its caller disconnects.
func TestCallIsCanceledWithItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "sleeper")
		body := `{"tool":"sleeper","limits":{"timeout_seconds":3000}}`
		conn := f.dial("tcp")
		require.NoError(t, newRequest(t, "POST", "/v1/calls", body).Write(conn))
		synctest.Wait()
		require.EqualValues(t, 1, f.ask("GET", "/v1/stats", "")["open_answers"])
		require.NoError(t, conn.Close())
		synctest.Wait()
		require.EqualValues(t, 0, f.ask("GET", "/v1/stats", "")["open_answers"])
	})
}

// The number of waits and streams is limited, for one client and for all.
func TestOpenAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		f.limited(64) // 60 of them for requests, 15 of a session
		for i := range 4 {
			f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Toolhost-Session", "ana")
			session := fmt.Sprintf("mallory%d", i)
			for range 15 {
				f.begin("GET /v1/events HTTP/1.1\nHost: localhost\nToolhost-Session: " + session + "\n\n")
			}
			synctest.Wait()
			p := f.refused("GET", "/v1/events", "", "Toolhost-Session", session)
			require.Equal(t, wire.CodeLimit, p.Code)
			require.Equal(t, 15, p.Max)
			require.Equal(t, 15*(i+1), f.OpenAnswers())
		}
		p := f.refused("GET", "/v1/events", "", "Toolhost-Session", "ana")
		require.Equal(t, wire.CodeLimit, p.Code)
		require.Equal(t, 60, p.Max)
	})
}

// A draining server accepts no new work and answers everything else. When it shuts down,
// waits and streams end at once, and a client sees that a stream is incomplete.
func TestDrainAndShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "sleeper")
		id := f.spawn("sleeper")
		synctest.Wait() // until it runs
		f.Drain()
		for _, path := range []string{"/v1/calls", "/v1/runs", "/v1/schedules"} {
			require.Equal(t, wire.CodeClosing, f.refused("POST", path, `{"tool":"sleeper"}`).Code)
		}
		require.Equal(t, wire.CodeClosing, f.refused("GET", "/readyz", "").Code)
		require.Equal(t, "ok", f.ask("GET", "/healthz", "")["status"])
		require.Equal(t, "running", f.ask("GET", "/v1/runs/"+id, "")["status"])

		wait := f.begin("GET /v1/runs/" + id + "?wait=9m HTTP/1.1\nHost: localhost\nToolhost-Session: default\n\n")
		stream := f.begin("GET /v1/runs/" + id + "/output HTTP/1.1\nHost: localhost\nToolhost-Session: default\nAccept: text/event-stream\n\n")
		streamed := make(chan string)
		go func() {
			text, _ := io.ReadAll(stream)
			streamed <- string(text)
		}()
		answered := make(chan string)
		go func() {
			text, _ := io.ReadAll(wait)
			answered <- string(text)
		}()
		time.Sleep(time.Second) // what was written has been sent
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, f.Shutdown(ctx))
		require.Less(t, time.Since(began), 10*time.Second)
		require.Contains(t, <-answered, `"code":"closing"`)
		text := <-streamed
		require.Contains(t, text, "working")
		require.NotContains(t, text, "event: end")
	})
}

// A request that does not end delays the shutdown no longer than the caller allows.
func TestShutdownGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		f.begin("POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 9\n\n{")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, f.Shutdown(ctx), context.DeadlineExceeded)
	})
}

// A log with a gap: the kept parts are returned, with a line for the missing part,
// and ranges report where they really begin.
func TestOutputWithAGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "huge")
		id := f.spawn("huge")
		f.ask("GET", "/v1/runs/"+id+"?wait=1m", "")
		const kept = 32 << 10
		_, whole := f.do("GET", "/v1/runs/"+id+"/output", "")
		_, file := f.do("GET", "/v1/runs/"+id+"/artifacts/output.log", "")
		require.Equal(t, file, whole)
		require.Contains(t, whole, "\n[system] 32768 bytes omitted\n")
		require.InDelta(t, kept, len(whole), 64)

		resp, part := f.do("GET", "/v1/runs/"+id+"/output", "", "Range", "bytes=24568-")
		require.Equal(t, "bytes 24568-24575/65536", resp.Header.Get("Content-Range"), "it ends where the gap begins")
		require.Equal(t, "89abcde\n", part)
		resp, part = f.do("GET", "/v1/runs/"+id+"/output", "", "Range", "bytes=30000-57352")
		require.Equal(t, "bytes 57344-57352/65536", resp.Header.Get("Content-Range"), "it begins where the gap ends")
		require.Equal(t, "012345678", part)
		resp, _ = f.do("GET", "/v1/runs/"+id+"/output", "", "Range", "bytes=65536-")
		require.Equal(t, 416, resp.StatusCode)

		_, text := f.do("GET", "/v1/runs/"+id+"/output", "", "Accept", "text/event-stream")
		require.Contains(t, text, `"omitted":32768`)
		var total int
		for line := range strings.Lines(text) {
			if data, ok := strings.CutPrefix(line, `data: {"attempt":1,"offset":`); ok {
				_, out, _ := strings.Cut(data, `"text":"`)
				total += len(strings.ReplaceAll(strings.TrimSuffix(out, "\"}\n"), `\n`, "\n"))
			}
		}
		require.Equal(t, kept, total)
	})
}
