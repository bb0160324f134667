package background

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// TestWake: a session is notified of just those ends that the spawn requested.
func TestWake(t *testing.T) {
	for _, c := range []struct {
		tool   string
		req    SpawnRequest
		notice engine.NoticeState
	}{
		{"echo", SpawnRequest{}, engine.NoticePending},
		{"echo", SpawnRequest{Wake: engine.WakeFailure}, engine.NoticeNone},
		{"panic", SpawnRequest{Wake: engine.WakeFailure}, engine.NoticePending},
		{"sleep", SpawnRequest{Wake: engine.WakeFailure}, engine.NoticePending}, // stopped
		{"panic", SpawnRequest{Silent: true}, engine.NoticeNone},
	} {
		bubble(t, c.tool, func(t *testing.T) {
			var box mailbox
			m := newManager(t, Config{OnNotice: box.put})
			c.req.Tool = c.tool
			id := must(m.Spawn(t.Context(), alice, c.req)).ID
			synctest.Wait()
			if c.tool == "sleep" {
				must(m.Stop(t.Context(), alice, id, StopRequest{By: "operator"}))
			}
			require.Equal(t, c.notice, wait(t, m, alice, id).Notice)
			synctest.Wait()
			require.Equal(t, c.notice == engine.NoticePending, len(box.ids()) == 1)
		})
	}
	bubble(t, "refused", func(t *testing.T) {
		m := newManager(t, Config{})
		for _, req := range []SpawnRequest{{Tool: "echo", Wake: "later"}, {Tool: "echo", Wake: engine.WakeFailure, Silent: true}} {
			_, err := m.Spawn(t.Context(), alice, req)
			require.ErrorIs(t, err, ErrInvalid)
		}
	})
}
