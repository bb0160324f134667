package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/identity"
)

// Who has to do something first is not told to come again.
func TestRetryOfLimits(t *testing.T) {
	for limit, retry := range map[error]string{
		background.ErrSessionLimit: "5", background.ErrOwnerLimit: "5", background.ErrHostLimit: "5",
		background.ErrScheduleLimit: "", background.ErrRecordLimit: "",
	} {
		w := httptest.NewRecorder()
		p := problem(fmt.Errorf("spawn: %w", &background.LimitError{Err: limit, Max: 7}))
		p.write(w)
		require.Equal(t, http.StatusTooManyRequests, w.Code, limit)
		require.Equal(t, CodeLimit, p.Code, limit)
		require.Equal(t, 7, p.Max, limit)
		require.Equal(t, retry, w.Header().Get("Retry-After"), limit)
	}
}

// A run whose end is not stored is not done.
func TestUnsavedRun(t *testing.T) {
	record := background.Run{Status: background.StatusSucceeded}
	require.True(t, newRun(identity.Caller{}, record, time.Now()).Done)
	record.Unsaved = true
	run := newRun(identity.Caller{}, record, time.Now())
	require.False(t, run.Done)
	require.True(t, run.Unsaved)
}
