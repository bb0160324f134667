package mcpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// client is the other end of a session: it sends lines and gets lines.
type client struct {
	t      *testing.T
	cancel context.CancelCauseFunc // ends the session from the server's side
	in     *io.PipeWriter
	out    *io.PipeReader
	lines  chan string // lines from the server; closed when the server is gone
	ended  chan error
	tasks  []string // the ids met so far
}

// connect starts a session on a service.
func connect(t *testing.T, s *server.Service) *client {
	t.Helper()
	return connectWith(t, s, mcpapi.Config{})
}

func connectWith(t *testing.T, s *server.Service, cfg mcpapi.Config) *client {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	serverIn, in := io.Pipe()
	out, serverOut := io.Pipe()
	c := &client{t: t, cancel: cancel, in: in, out: out, lines: make(chan string), ended: make(chan error, 1)}
	go func() {
		cfg.Version, cfg.In, cfg.Out = "test", serverIn, serverOut
		c.ended <- mcpapi.Run(ctx, s, cfg.WithoutDrain())
		_ = serverOut.Close()
	}()
	go func() {
		defer close(c.lines)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 64<<20)
		for scanner.Scan() {
			c.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() { cancel(nil) })
	return c
}

// send sends lines. The names of tasks in them become their ids.
func (c *client) send(lines []byte) {
	c.t.Helper()
	for i, id := range c.tasks {
		lines = bytes.ReplaceAll(lines, []byte(taskName(i)), []byte(id))
	}
	_, err := c.in.Write(lines)
	require.NoError(c.t, err)
}

// receive returns the next n lines. The ids of tasks in them become names.
func (c *client) receive(n int) []byte {
	c.t.Helper()
	var said []byte
	for range n {
		line, ok := <-c.lines
		require.True(c.t, ok, "the session is over")
		said = append(said, c.name(line)+"\n"...)
	}
	return said
}

var anyTask = regexp.MustCompile(`bg_[a-z2-7]{26}`)

func taskName(i int) string { return fmt.Sprintf("TASK-%d", i+1) }

func (c *client) name(line string) string {
	for _, id := range anyTask.FindAllString(line, -1) {
		if !slices.Contains(c.tasks, id) {
			c.tasks = append(c.tasks, id)
		}
	}
	for i, id := range c.tasks {
		line = strings.ReplaceAll(line, id, taskName(i))
	}
	return line
}

// wait waits for the end of the session and returns what the server sent until then, and
// the error of Run.
func (c *client) wait() (string, error) {
	var rest strings.Builder
	for line := range c.lines {
		rest.WriteString(line + "\n")
	}
	return rest.String(), <-c.ended
}
