package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/engine/enginetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestEngine runs the suite without hints: a connection that waits for hints would keep the time
// of a bubble from passing.
func TestEngine(t *testing.T) {
	pgtest.Schema(t)
	enginetest.Run(t, func(t *testing.T) engine.Engine {
		return open(t, pgtest.Schema(t), Options{Poll: -1, clock: time.Now})
	})
}

func open(t *testing.T, url string, o Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), url, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}
