package webui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
)

// The page says that the program's own tools are not sandboxed.
func TestToolsOfTheProgram(t *testing.T) {
	s, err := server.Open(t.Context(), server.Config{Tools: []gotool.Tool{{
		Name: "lookup", Description: "Looks <b>up</b>.",
		Handler: gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { return gotool.None{}, nil }),
	}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(context.Background())) }()

	w := httptest.NewRecorder()
	New(s, Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ui/plugins", nil))
	require.Equal(t, http.StatusOK, w.Code)
	for _, want := range []string{"Tools of the program", "Not sandboxed: they can do whatever the program can.", "<code>lookup</code></a>", "Looks &lt;b&gt;up", "may delete or overwrite, reaches the network"} {
		require.Contains(t, w.Body.String(), want)
	}
}
