package mcpapi_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/wiretest"
)

// TestWire plays the conversations in testdata. Their sections are:
//
//	-- plugins --        the loaded plugins, one per line
//	-- client --         lines to send; each call among them is waited for
//	-- client 2 lines -- lines to send at once, and how many lines answer them
//	-- server --         what the server says to the section before
//
// When the last section is done the client closes its end: the session has to
// end, and nothing may follow.
func TestWire(t *testing.T) { wiretest.Run(t, converse) }

func converse(t *testing.T, file string) {
	var c *client
	wiretest.Play(t, file, "server", func(name []string, text []byte) []byte {
		switch {
		case name[0] == "plugins":
			c = connect(t, openService(t, strings.Fields(string(text))...))
		case name[0] == "client" && len(name) == 1:
			return c.sendEach(text)
		case name[0] == "client":
			n, err := strconv.Atoi(name[1])
			require.NoError(t, err)
			c.send(text)
			return c.receive(n)
		default:
			t.Fatalf("unknown section %q", name)
		}
		return nil
	})
	require.NoError(t, c.in.Close())
	rest, err := c.wait()
	require.NoError(t, err)
	require.Empty(t, rest, "the server said more")
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
