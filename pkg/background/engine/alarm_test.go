package engine_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
)

// setBack returns t as a process would read it if its wall clock had been set back by that
// number of seconds.
func setBack(t time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= seconds << 30 // the first field of a time with both clocks
	return t
}

// TestAlarm: a run continues at the time that was promised, whatever happens to the wall clock.
func TestAlarm(t *testing.T) {
	now := time.Now()
	back := setBack(now, 3600)
	require.Equal(t, -time.Hour, back.Round(0).Sub(now.Round(0)))
	require.Zero(t, back.Sub(now))

	a := engine.NewAlarm(now.Add(time.Minute).Round(0))
	require.False(t, a.Due(now))
	require.False(t, a.Due(now.Add(59*time.Second)))
	require.True(t, a.Due(now.Add(61*time.Second)))
	require.False(t, a.Due(setBack(now.Add(59*time.Second), 3600)))
	require.True(t, a.Due(setBack(now.Add(61*time.Second), 3600)), "the clock was set back")
	require.True(t, a.Due(now.Add(61*time.Second).Round(0)), "the machine has slept")
}
