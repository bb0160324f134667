package mcpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// speaker is a client on a pipe, whose server drains it when the client closes it.
type speaker struct {
	t      *testing.T
	in     io.WriteCloser
	said   strings.Builder
	served chan error
	ended  chan struct{}
}

func pipeTo(t *testing.T, cfg server.Config) *speaker {
	in, client := io.Pipe()
	out, answers := io.Pipe()
	p := &speaker{t: t, in: client, served: make(chan error, 1), ended: make(chan struct{})}
	s := open(t, cfg)
	go func() {
		p.served <- mcpapi.Run(t.Context(), s, mcpapi.Config{Session: "ana", In: in, Out: answers})
		_ = answers.Close()
	}()
	go func() {
		_, _ = io.Copy(&p.said, out)
		close(p.ended)
	}()
	return p
}

func (p *speaker) say(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
}

// end closes the input, and returns everything that the server has sent.
func (p *speaker) end() string {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	require.NoError(p.t, <-p.served)
	<-p.ended
	return p.said.String()
}

// A canceled call gets no response over HTTP: its stream ends without one, and cannot be
// resumed. If the call is made again after that, it is a new one, which acts again.
func TestCanceledCallIsNotAnswered(t *testing.T) {
	needsOneHost(t, "calls in flight")
	const canceled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"enough"}}`
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		for name, meta := range map[string]string{"silent": "", "with progress": `,"_meta":{"progressToken":2}`} {
			t.Run(version+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var letters atomic.Int32
					l := connectLink(t, serveHTTP(t, sender(&letters)), "ana", version)
					answer := make(chan string)
					go func() {
						_, text := l.during(time.Hour, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send","arguments":{}`+meta+`}}`)
						answer <- text
					}()
					time.Sleep(time.Second)
					code, _ := l.during(time.Minute, http.MethodPost, canceled)
					require.Equal(t, http.StatusAccepted, code)

					text := <-answer
					require.NotContains(t, text, `"id":2`)
					require.NotContains(t, text, "error")
					require.Equal(t, meta != "", strings.Contains(text, "half way"))
					if meta == "" {
						require.Empty(t, eventIDs.FindAllString(text, -1), "there is nothing to resume")
					} else {
						code, text := l.resume(time.Minute, lastID(t, text))
						require.Equal(t, http.StatusBadRequest, code, text)
					}

					_, text = l.during(time.Hour, http.MethodPost, sendWith("3"))
					require.Contains(t, text, "letter 2", "its caller asked for it twice")
					require.EqualValues(t, 2, letters.Load())
				})
			})
		}
	}
}

// On a pipe it is the same, in both eras.
func TestCanceledCallIsNotAnsweredOnAPipe(t *testing.T) {
	for era, meta := range map[string]string{
		"2025-11-25": `"progressToken":"p"`, "2026-07-28": `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`,
	} {
		t.Run(era, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var letters atomic.Int32
				p := pipeTo(t, sender(&letters))
				p.say(strings.TrimSpace(initialize))
				call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{` + meta + `},"name":"send","arguments":{}}}`
				p.say(fmt.Sprintf(call, 11))
				time.Sleep(time.Second)
				p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
				p.say(fmt.Sprintf(call, 12))
				time.Sleep(time.Minute)

				said := p.end()
				require.NotContains(t, said, `"id":11`)
				require.Contains(t, said, `"id":12`)
				require.Contains(t, said, "letter 2")
				require.EqualValues(t, 2, letters.Load())
			})
		})
	}
}
