package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/toolhost/toolhost/server/wire"
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
	terminal := bufio.NewReader(outside)
	const evil = "\x1b]0;owned\a\x1b[31mred\u009b2J\x7f"
	const unseen = "to \u202emoor\u2066 1\u200b0"
	const shown = "to ⟨U+202E⟩moor⟨U+2066⟩ 1⟨U+200B⟩0"
	for name, test := range map[string]struct {
		say  func()
		want string
	}{
		"a result":        {func() { u.printf("%s\n", evil) }, "red2J\r\n"},
		"a note":          {func() { u.notef("problem: %s", evil) }, "problem: red2J\r\n"},
		"an error":        {func() { u.fail(diagnosis{Message: evil}) }, "toolhost: red2J\r\n"},
		"JSON":            {func() { u.printJSON(evil) }, `"\u001b]0;owned\u0007\u001b[31mred2J"` + "\r\n"},
		"live output":     {func() { fmt.Fprintln(newBar(inside).output(inside), evil) }, "red2J\r\n"},
		"of a run":        {func() { newBar(inside).output(inside).take(wire.Output{Omitted: 3, Text: evil + "\n"}) }, "\r\n[system] 3 bytes omitted\r\nred2J\r\n"},
		"what a bar says": {func() { newBar(inside).notef("%s", evil) }, "red2J\r\n"},

		"unseen in a result":    {func() { u.printf("%s\n", unseen) }, shown + "\r\n"},
		"unseen in JSON":        {func() { u.printJSON(unseen) }, `"` + shown + `"` + "\r\n"},
		"unseen in live output": {func() { fmt.Fprintln(newBar(inside).output(inside), unseen) }, shown + "\r\n"},
		"unseen in a bar":       {func() { newBar(inside).set(1, 0, unseen) }, "1 " + shown},
		"unseen in a cell":      {func() { fmt.Fprintln(inside, short(unseen, 40)) }, shown + "\r\n"},
		"a character in two pieces": {func() {
			o := newBar(inside).output(inside)
			_, _ = o.Write([]byte("Z\xc3"))
			_, _ = o.Write([]byte("\xbcrich \xe6\x9d"))
			_, _ = o.Write([]byte("\xb1\xe4"))
			o.end()
			fmt.Fprintln(o)
		}, "Zürich 東\uFFFD\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			test.say()
			fmt.Fprint(inside, "\a") // the end, which nothing that is shown has in it
			seen, err := terminal.ReadString('\a')
			require.NoError(t, err)
			require.Equal(t, test.want, strings.TrimSuffix(seen, "\a"))
		})
	}
}
