package webui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/gotool"
)

// The page shows deferred tools, and says that they are not listed for models.
func TestDeferredTools(t *testing.T) {
	handler := gotool.Handle(func(context.Context, *gotool.Call, struct{}) (gotool.None, error) { return gotool.None{}, nil })
	s, err := server.Open(t.Context(), server.Config{
		Tools:   []gotool.Tool{{Name: "lookup", Description: "Looks up.", Handler: handler}, {Name: "given", Description: "Is given.", Handler: handler}},
		Listing: map[string]server.Listing{"look*": server.ListBySearch},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(context.Background())) }()

	for page, want := range map[string]int{"/ui/tools": 1, "/ui/tools/lookup": 1, "/ui/tools/given": 0} {
		w := httptest.NewRecorder()
		New(s, Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, page, nil))
		require.Equal(t, http.StatusOK, w.Code, page)
		require.Equal(t, want, strings.Count(w.Body.String(), "Models find it by search."), page)
	}
}
