package guesttest

import (
	"testing"
	"testing/synctest"
	"time"
)

// start is the time at which the clock begins for a plugin that does not need a real one.
var start = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)

// StoppedClock calls f with the clock that a plugin sees if it does not need a real one. That
// clock begins on 2022-01-01 in UTC, and advances only during sleeps. The rules of
// [synctest.Test] apply to f and to the tools that it calls: their goroutines must end, and
// they must not use channels made outside f, such as package variables.
func StoppedClock(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(start))
		f(t)
	})
}
