package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// costs: the cost of attempts outlasts them, and a diagnosis is stored with the
// end.
func costs(t *testing.T, e *store) {
	submit(t, e, "bg_a", "s")
	lease := started(t, e, "bg_a")
	first := engine.Cost{Fuel: 10, CPU: time.Second, Wait: time.Minute, MemoryPeak: 1 << 20}
	require.NoError(t, lease.Report(t.Context(), engine.Beat{Detail: "half", Cost: first}))
	require.Equal(t, first, get(t, e, "bg_a").Cost)
	require.NoError(t, e.Requeue(t.Context(), "bg_a", 1))
	require.Equal(t, first, get(t, e, "bg_a").Cost)

	lease = started(t, e, "bg_a")
	require.Equal(t, engine.Beat{Cost: first}, lease.Run().Beat)
	all := first.Add(engine.Cost{Fuel: 5, MemoryPeak: 1})
	require.Equal(t, engine.Cost{Fuel: 15, CPU: time.Second, Wait: time.Minute, MemoryPeak: 1 << 20}, all)
	why := &engine.Diagnosis{Reason: "unreachable", Trace: "main.main", LastWords: "out of luck"}
	_, err := lease.Complete(t.Context(), engine.StatusFailed, engine.Beat{Cost: all}, engine.End{
		Error: &engine.RunError{Kind: engine.KindInternal, Message: "sorry"}, Diagnosis: why, FinishedAt: time.Now(),
	})
	require.NoError(t, err)

	run := get(t, e, "bg_a")
	require.Equal(t, all, run.Cost)
	require.Equal(t, why, run.Diagnosis)
	require.NotContains(t, artifact(t, e, "bg_a", engine.ResultJSON), "luck")
}
