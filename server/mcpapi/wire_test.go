package mcpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the server said into testdata/*.txtar")

// TestWire runs the conversations in testdata. Each file says first why it is
// there. Then its sections follow in turn:
//
//	-- plugins --        the plugins that are there, one a line
//	-- client --         lines to send; each call among them is waited for
//	-- client 2 lines -- lines to send at once, and how many lines answer them
//	-- server --         what the server says to the section before
//
// When the last section is done the client closes its end: the session has to
// end, and nothing may follow. A conversation runs in a bubble: no time passes
// while a plugin computes, and no goroutine may be left in the end.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { converse(t, file) })
		})
	}
}

func converse(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	require.NotEmpty(t, bytes.TrimSpace(archive.Comment), "the file has to say why it is there")
	var c *client
	var said []byte
	for i := range archive.Files {
		section := &archive.Files[i]
		words := strings.Fields(section.Name)
		switch {
		case section.Name == "plugins":
			c = connect(t, openService(t, strings.Fields(string(section.Data))...))
		case words[0] == "client" && len(words) == 1:
			require.Empty(t, said)
			said = c.sendEach(section.Data)
		case words[0] == "client":
			require.Empty(t, said)
			n, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			c.send(section.Data)
			said = c.receive(n)
		case section.Name == "server" && *update:
			section.Data, said = said, nil
		case section.Name == "server":
			require.Equal(t, string(section.Data), string(said))
			said = nil
		default:
			t.Fatalf("unknown section %q", section.Name)
		}
	}
	require.Empty(t, said)
	require.NoError(t, c.in.Close())
	rest, err := c.wait()
	require.NoError(t, err)
	require.Empty(t, rest, "the server said more")
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o666))
	}
}

// sendEach sends lines and waits for an answer to each call, and returns all
// that the server said.
func (c *client) sendEach(lines []byte) []byte {
	var said []byte
	for line := range bytes.Lines(lines) {
		c.send(line)
		for id := idOf(line, true); id != ""; {
			answer := c.receive(1)
			said = append(said, answer...)
			if idOf(answer, false) == id {
				break
			}
		}
	}
	return said
}

// idOf returns the id of a call, or of an answer, or nothing.
func idOf(line []byte, call bool) string {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(line, &m) != nil || (m.Method != "") != call {
		return ""
	}
	return string(m.ID)
}
