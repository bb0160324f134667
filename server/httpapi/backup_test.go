package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background/sqlite"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/identity"
)

// The operator backs up what was stored, and nobody else does. A backup whose client goes
// away in the middle is cut off, not ended.
func TestBackup(t *testing.T) {
	echo, logs := zoo()["echo"], t.TempDir()
	service, err := server.Open(t.Context(), server.Config{
		Folders:  []plugins.Folder{{Path: "zoo", FS: fstest.MapFS{"echo.wasm": &fstest.MapFile{Data: echo.Wasm()}}}},
		CacheDir: plugintest.CacheDir(), DataDir: t.TempDir(), AuditDir: logs,
	})
	require.NoError(t, err)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	t.Cleanup(func() { _ = service.Close(gone) })
	api := httpapi.New(service, httpapi.Config{OAuth: &identity.OAuth{Issuer: "https://login.example", Audience: audience}, Token: "s3cret"})
	run, err := service.Session("s").Spawn(t.Context(), server.SpawnRequest{Tool: "echo"})
	require.NoError(t, err)

	for _, headers := range [][]string{{}, {"Authorization", "Bearer s3cre"}} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, newRequest(t, "POST", "/v1/backup", "", headers...))
		require.Equal(t, http.StatusUnauthorized, w.Code)
	}

	ask := newRequest(t, "POST", "/v1/backup", "", "Authorization", "Bearer s3cret")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, ask)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "application/zip", w.Header().Get("Content-Type"))
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, sqlite.Restore(t.Context(), bytes.NewReader(w.Body.Bytes()), int64(w.Body.Len()), dir))
	restored, err := sqlite.Open(t.Context(), dir, sqlite.Config{})
	require.NoError(t, err)
	_, err = restored.Get(t.Context(), run.TaskID)
	require.NoError(t, err)
	require.NoError(t, restored.Close())

	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() { api.ServeHTTP(&cutOff{httptest.NewRecorder(), 5000}, ask) })
	found, err := audit.Read(logs, audit.Query{Kinds: []audit.Kind{audit.Admin}})
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, "backup", found[0].Action)
}

// cutOff is a response whose client goes away.
type cutOff struct {
	*httptest.ResponseRecorder
	left int
}

func (w *cutOff) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("gone")
	}
	return w.ResponseRecorder.Write(p)
}
