// Package fulltest separates the tests that only the full check runs from those that
// the gate runs too.
//
// A plain go test runs the exact and quick tests. Tests that take real time, kill
// processes, run compilers or start third-party servers run only if the environment
// variable TOOLHOST_TEST is "full", as in .ci/full.
package fulltest

import (
	"os"
	"testing"
)

var enabled = take() == "full"

// take removes the variable from the environment: the toolhost command, which tests
// start as a process of its own, refuses variables that are not its settings.
func take() string {
	const name = "TOOLHOST_TEST"
	value := os.Getenv(name)
	_ = os.Unsetenv(name)
	return value
}

// Enabled reports whether this is the full check.
func Enabled() bool { return enabled }

// Only skips a test outside of the full check, and logs why the gate does not run
// it.
func Only(t testing.TB, why string) {
	t.Helper()
	if !enabled {
		t.Skipf("%s: runs with TOOLHOST_TEST=full", why)
	}
}
