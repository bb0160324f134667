package httpapi_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
)

// A client that follows the events of a session is told when the tools change, and then
// finds the new tools.
func TestToolsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "plain")
		conn := f.dial("tcp")
		go func() { _, _ = conn.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		synctest.Wait()
		f.files["echo.wasm"] = &fstest.MapFile{Data: zoo()["echo"].Wasm()}
		_, err = f.service.Reload(t.Context())
		require.NoError(t, err)
		lines := bufio.NewScanner(resp.Body)
		var event []string
		for lines.Scan() && lines.Text() != "" {
			event = append(event, lines.Text())
		}
		require.Equal(t, []string{"event: tools", `data: {"kind":"tools"}`}, event)
		_, body := f.do("GET", "/v1/tools/echo", "")
		require.True(t, strings.HasPrefix(body, `{"name":"echo"`), body)
		require.NoError(t, conn.Close())
	})
}
