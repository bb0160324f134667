package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal opens a terminal that nobody sits at.
func openTerminal(t *testing.T) (inside, outside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = inside.Close() })
	return inside, outside
}

// Nothing a plugin says controls the terminal, by whichever way it gets there.
func TestTerminalIsNotControlled(t *testing.T) {
	inside, outside := openTerminal(t)
	u := &ui{out: inside, err: inside}
	const evil = "\x1b]0;owned\a\x1b[31mred\u009b2J\x7f"
	for name, test := range map[string]struct {
		say  func()
		want string
	}{
		"a result":    {func() { u.printf("%s\n", evil) }, "red2J\r\n"},
		"a note":      {func() { u.notef("problem: %s", evil) }, "problem: red2J\r\n"},
		"an error":    {func() { u.fail(diagnosis{Message: evil}) }, "toolhost: red2J\r\n"},
		"JSON":        {func() { u.printJSON(evil) }, `"\u001b]0;owned\u0007\u001b[31mred2J"` + "\r\n"},
		"live output": {func() { fmt.Fprintln(newBar(inside), evil) }, "red2J\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			test.say()
			seen := make([]byte, 1<<10)
			n, err := outside.Read(seen)
			require.NoError(t, err)
			require.Equal(t, test.want, string(seen[:n]))
		})
	}
}
