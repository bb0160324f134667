package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// Compressed bodies are refused, whichever way they come in.
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

// An answer with fewer bytes than announced, because its file was cut or could not be
// read, does not look complete.
func TestShortAnswers(t *testing.T) {
	text := strings.Repeat("half of it\n", 10<<10)
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", strconv.Itoa(2*len(text)))
			_, _ = io.WriteString(w, text)
			require.NoError(t, http.NewResponseController(w).Flush())
		})}, "echo")
		conn := f.dial("tcp")
		go func() { _ = newRequest(t, "POST", "/mcp", "").Write(conn) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Zero(t, f.OpenAnswers())
	})
}

// HEAD is answered like GET, but without the body.
func TestHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo", "huge")
		id := f.spawn("huge")
		f.ask("GET", "/v1/runs/"+id+"?wait=1m", "")
		for _, path := range []string{"/v1/tools", "/v1/runs/" + id, "/v1/openapi.json", "/v1/runs/" + id + "/artifacts/output.log"} {
			get, _ := f.do("GET", path, "")
			head, none := f.do("HEAD", path, "")
			require.Empty(t, none)
			get.Header.Del("Date")
			head.Header.Del("Date")
			require.Equal(t, get.Header, head.Header, path)
		}
	})
}
