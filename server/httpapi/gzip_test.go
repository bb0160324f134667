package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// unzip is what a compressed text stands for.
func unzip(t testing.TB, text string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(plain)
}

// What is large, is text and is whole is compressed for clients that take it.
func TestGzip(t *testing.T) {
	const takes = "gzip, deflate, br"
	for name, test := range map[string]struct {
		path    string // {id} is a run that wrote 64 KiB
		accept  string
		headers []string
		zipped  bool
		vary    bool
	}{
		"the tools":                      {path: "/v1/tools", accept: takes, zipped: true, vary: true},
		"not asked for":                  {path: "/v1/tools", vary: true},
		"refused":                        {path: "/v1/tools", accept: "gzip;q=0, br", vary: true},
		"a small answer":                 {path: "/v1/runs/{id}", accept: takes},
		"a problem":                      {path: "/v1/tools/none", accept: takes},
		"the document":                   {path: "/v1/openapi.json", accept: takes, zipped: true, vary: true},
		"output":                         {path: "/v1/runs/{id}/output", accept: takes, zipped: true, vary: true},
		"a range of output":              {path: "/v1/runs/{id}/output", accept: takes, headers: []string{"Range", "bytes=0-9999"}},
		"a file":                         {path: "/v1/runs/{id}/artifacts/output.log", accept: takes, zipped: true, vary: true},
		"a range of a file":              {path: "/v1/runs/{id}/artifacts/output.log", accept: takes, headers: []string{"Range", "bytes=0-9999"}},
		"output as events, 32 KiB of it": {path: "/v1/runs/{id}/output", accept: takes, headers: []string{"Accept", "text/event-stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "echo", "huge")
				id := f.spawn("huge")
				f.ask("GET", "/v1/runs/"+id+"?wait=1m", "")
				path := strings.ReplaceAll(test.path, "{id}", id)
				plain, want := f.do("GET", path, "", test.headers...)
				resp, body := f.do("GET", path, "", append(test.headers, "Accept-Encoding", test.accept)...)
				require.Equal(t, plain.StatusCode, resp.StatusCode)
				require.Equal(t, plain.Header.Get("Content-Type"), resp.Header.Get("Content-Type"))
				require.Equal(t, test.vary, resp.Header.Get("Vary") == "Accept-Encoding", resp.Header)
				require.Equal(t, test.vary, plain.Header.Get("Vary") == "Accept-Encoding", plain.Header)
				require.Equal(t, test.zipped, resp.Header.Get("Content-Encoding") == "gzip", resp.Header)
				if !test.zipped {
					require.Equal(t, want, body)
					return
				}
				require.Equal(t, want, unzip(t, body))
				require.Less(t, 2*len(body), len(want))
				require.Empty(t, resp.Header.Get("Accept-Ranges"), "ranges are of the bytes as they are")

				head, none := f.do("HEAD", path, "", append(test.headers, "Accept-Encoding", test.accept)...)
				require.Empty(t, none)
				for _, name := range []string{"Date", "Content-Length"} { // HEAD need not compress to find the length
					resp.Header.Del(name)
				}
				head.Header.Del("Date")
				require.Equal(t, resp.Header, head.Header, "HEAD says what GET does")
			})
		})
	}
}

// Over the socket it would only take time.
func TestNoGzipOverTheSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		resp, body := exchange(t, f.dial("unix"), newRequest(t, "GET", "/v1/tools", "", "Accept-Encoding", "gzip"))
		require.Empty(t, resp.Header.Get("Content-Encoding"))
		require.True(t, strings.HasPrefix(body, "{"))
	})
}

// A client that has the document, however it was sent, is not sent it again.
func TestGzipAndTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		resp, _ := f.do("GET", "/v1/openapi.json", "", "Accept-Encoding", "gzip")
		require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
		for _, accept := range []string{"gzip", ""} {
			again, body := f.do("GET", "/v1/openapi.json", "", "Accept-Encoding", accept, "If-None-Match", resp.Header.Get("ETag"))
			require.Equal(t, http.StatusNotModified, again.StatusCode)
			require.Equal(t, "Accept-Encoding", again.Header.Get("Vary"))
			require.Empty(t, again.Header.Get("Content-Encoding"))
			require.Empty(t, body)
		}
	})
}

// What another protocol answers is compressed in the same way: not what is
// compressed already, not events, and what was flushed is there at once.
func TestGzipOfMounted(t *testing.T) {
	large := strings.Repeat("all work and no play\n", 200)
	for name, test := range map[string]struct {
		head    map[string]string
		flush   bool
		zipped  bool
		decoded string
	}{
		"JSON":             {head: map[string]string{"Content-Type": "application/json"}, zipped: true},
		"with a tag":       {head: map[string]string{"Content-Type": "text/html", "Etag": `"v1"`}, zipped: true},
		"piece by piece":   {head: map[string]string{"Content-Type": "text/plain"}, flush: true, zipped: true},
		"an image":         {head: map[string]string{"Content-Type": "image/png"}},
		"of no type":       {head: map[string]string{}},
		"compressed":       {head: map[string]string{"Content-Type": "application/json", "Content-Encoding": "br"}},
		"events":           {head: map[string]string{"Content-Type": "text/event-stream"}, flush: true},
		"events by a name": {head: map[string]string{"Content-Type": "Text/Event-Stream; charset=utf-8"}, flush: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				other := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for k, v := range test.head {
						w.Header().Set(k, v)
					}
					for range 3 {
						_, _ = io.WriteString(w, large)
						if test.flush {
							require.NoError(t, http.NewResponseController(w).Flush())
							time.Sleep(time.Second)
						}
					}
				})
				f := serve(t, httpapi.Config{MCP: other}, "echo")
				conn := f.dial("tcp")
				go func() { _ = newRequest(t, "POST", "/mcp", "", "Accept-Encoding", "gzip").Write(conn) }()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.Equal(t, test.zipped, resp.Header.Get("Content-Encoding") == "gzip")
				body := io.Reader(resp.Body)
				if test.zipped {
					body, err = gzip.NewReader(resp.Body)
					require.NoError(t, err)
					if test.head["Etag"] != "" {
						require.Equal(t, `W/"v1"`, resp.Header.Get("Etag"))
					}
				}
				began := time.Now()
				first := make([]byte, len(large))
				_, err = io.ReadFull(body, first)
				require.NoError(t, err)
				require.Less(t, time.Since(began), time.Second, "what was flushed is there")
				rest, err := io.ReadAll(body)
				require.NoError(t, err)
				require.Equal(t, strings.Repeat(large, 3), string(first)+string(rest))
			})
		})
	}
}

// An answer that breaks off does not look as if it had ended: neither the
// compression nor the transfer does.
func TestGzipOfABrokenAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			if r.Header.Get("X-When") == "early" {
				w.WriteHeader(http.StatusOK)
			} else {
				_, _ = io.WriteString(w, strings.Repeat("half of it\n", 10<<10))
				require.NoError(t, http.NewResponseController(w).Flush())
			}
			panic(http.ErrAbortHandler)
		})
		f := serve(t, httpapi.Config{MCP: other}, "echo")
		conn := f.dial("tcp")
		go func() { _ = newRequest(t, "POST", "/mcp", "", "Accept-Encoding", "gzip").Write(conn) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		sent, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		z, err := gzip.NewReader(bytes.NewReader(sent))
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, strings.Repeat("half of it\n", 10<<10), string(text))
		require.Zero(t, httpapi.Compressing(), "the compressor is free")

		early := f.begin("POST /mcp HTTP/1.1\nHost: localhost\nX-When: early\nAccept-Encoding: gzip\n\n")
		nothing, _ := io.ReadAll(early)
		require.Empty(t, nothing, "a connection that ends, and no answer")
	})
}

// A client that does not take a compressed answer loses its connection, and the
// compressor is free again.
func TestGzipOfAStalledReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		f.begin("GET /v1/openapi.json HTTP/1.1\nHost: localhost\nAccept-Encoding: gzip\n\n")
		synctest.Wait()
		require.EqualValues(t, 1, httpapi.Compressing())
		time.Sleep(time.Minute)
		require.Zero(t, httpapi.Compressing())
	})
}

// Of many that do not take what they asked for, only some hold a compressor.
// Everybody is answered all the same.
func TestGzipIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		for range httpapi.MaxGzip + 5 {
			f.begin("GET /v1/openapi.json HTTP/1.1\nHost: localhost\nAccept-Encoding: gzip\n\n")
		}
		synctest.Wait()
		require.EqualValues(t, httpapi.MaxGzip, httpapi.Compressing())
		resp, body := f.do("GET", "/v1/openapi.json", "", "Accept-Encoding", "gzip")
		require.Empty(t, resp.Header.Get("Content-Encoding"))
		require.Equal(t, "Accept-Encoding", resp.Header.Get("Vary"))
		require.Equal(t, string(httpapi.Document()), body)
		time.Sleep(time.Minute)
		require.Zero(t, httpapi.Compressing())
	})
}

// Bodies that are compressed are refused, by whatever door.
func TestCompressedBodies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := false
		f := serve(t, httpapi.Config{MCP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })}, "echo")
		for _, coding := range []string{"gzip", "br", "deflate, gzip", "snappy\t"} {
			for _, path := range []string{"/v1/calls", "/mcp"} {
				resp, text := f.do("POST", path, `{"tool":"echo"}`, "Content-Encoding", coding)
				require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode, text)
				require.Contains(t, text, `"code":"media_type"`)
				require.Contains(t, text, "Content-Encoding "+strings.TrimSpace(coding))
				require.Equal(t, "identity", resp.Header.Get("Accept-Encoding"))
			}
		}
		require.False(t, reached)
		f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Content-Encoding", "identity")
		resp, _ := f.do("POST", "/v1/calls", `{"tool":"echo"}`, "Content-Type", "text/plain")
		require.Empty(t, resp.Header.Get("Accept-Encoding"), "that was not why")
	})
}

// An answer that has fewer bytes than it said, for its file was cut or could not
// be read, does not look whole, compressed or not.
func TestShortAnswers(t *testing.T) {
	text := strings.Repeat("half of it\n", 10<<10)
	for _, takes := range []string{"gzip", "identity"} {
		bubble(t, func(t *testing.T) {
			f := serve(t, httpapi.Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Length", strconv.Itoa(2*len(text)))
				_, _ = io.WriteString(w, text)
				require.NoError(t, http.NewResponseController(w).Flush())
			})}, "echo")
			conn := f.dial("tcp")
			go func() { _ = newRequest(t, "POST", "/mcp", "", "Accept-Encoding", takes).Write(conn) }()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, takes == "gzip", resp.Header.Get("Content-Encoding") == "gzip")
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, takes)
			require.Zero(t, httpapi.Compressing())
			require.Zero(t, f.OpenAnswers())
		})
	}
}
