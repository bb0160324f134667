package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// A client that has to do something first is not told to retry.
func TestRetryOfLimits(t *testing.T) {
	for limit, retry := range map[error]string{
		engine.ErrSessionLimit: "5", engine.ErrOwnerLimit: "5", background.ErrHostLimit: "5",
		engine.ErrScheduleLimit: "", engine.ErrRecordLimit: "",
	} {
		w := httptest.NewRecorder()
		p := problemOf(fmt.Errorf("spawn: %w", &engine.LimitError{Err: limit, Max: 7}))
		p.write(w)
		require.Equal(t, http.StatusTooManyRequests, w.Code, limit)
		require.Equal(t, wire.CodeLimit, p.Code, limit)
		require.Equal(t, 7, p.Max, limit)
		require.Equal(t, retry, w.Header().Get("Retry-After"), limit)
	}
}
