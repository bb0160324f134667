package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/wiretest"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// TestWire plays the conversations in testdata. Their sections are:
//
//	-- plugins --       the loaded plugins, one per line
//	-- token --         the token the server asks for, if any
//	-- oauth --         an issuer whose tokens are taken, and the scopes they need;
//	                    TOKEN-OF-name is a token of it, with the scope "tools"
//	-- request --       a request over TCP; Host and Content-Length are added, and
//	                    Toolhost-Session: default unless it is given
//	-- socket --        a request over the unix socket
//	-- request 25s --   a request whose answer is read so long, and then dropped
//	-- response --      the answer to the request before: status, headers, body
//	-- task --          a tool is called by a client of tasks, and asks the user
//	-- sleep 1h --      time passes
//
// Of the headers, those that are the same in all answers are left out. JSON is
// indented, and what differs from run to run has a name instead: ids, digests,
// times that were measured. The time is 2000-01-01.
func TestWire(t *testing.T) { wiretest.Run(t, converse) }

func converse(t *testing.T, file string) {
	w := &conversation{names: map[string]string{}}
	var cfg httpapi.Config
	wiretest.Play(t, file, "response", func(name []string, text []byte) []byte {
		argument := strings.Join(name[1:], " ")
		switch name[0] {
		case "token":
			cfg.Token = strings.TrimSpace(string(text))
		case "oauth":
			cfg.OAuth = startIssuer(t).trust(strings.Fields(string(text))...)
		case "plugins":
			w.fixture = serve(t, cfg, strings.Fields(string(text))...)
		case "task":
			w.task(strings.TrimSpace(string(text)))
		case "sleep":
			time.Sleep(w.duration(argument))
		case "request":
			return w.send("tcp", text, w.duration(argument))
		case "socket":
			return w.send("unix", text, w.duration(argument))
		default:
			t.Fatalf("unknown section %q", name)
		}
		return nil
	})
}

// conversation is one conversation.
type conversation struct {
	*fixture
	names map[string]string // of ids
}

func (w *conversation) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	require.NoError(w.t, err)
	return d
}

// task calls a tool as MCP does for a client that takes tasks and can ask its
// user: the call becomes a run, which asks.
func (w *conversation) task(tool string) {
	_, err := w.service.Call(w.t.Context(), server.Request{
		Session: wire.DefaultSession, Tool: tool, AskLater: true, OnPark: func(run wire.Run) { w.name([]byte(run.TaskID)) },
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, server.ErrAskAgain },
	})
	require.NoError(w.t, err)
}

// send sends a request as it stands there and returns the answer. With a time,
// the answer is a stream that is read so long.
func (w *conversation) send(network string, text []byte, during time.Duration) []byte {
	for id, name := range w.names {
		text = bytes.ReplaceAll(text, []byte(name), []byte(id))
	}
	text = anyToken.ReplaceAllFunc(text, func(name []byte) []byte { return []byte(tokenOf(w.t, string(name[len("TOKEN-OF-"):]))) })
	head, body, _ := bytes.Cut(text, []byte("\n\n"))
	body = bytes.TrimSuffix(body, []byte("\n"))
	lines := strings.Split(strings.TrimSpace(string(head)), "\n")
	if !strings.Contains(string(head), "\nHost:") {
		lines = slices.Insert(lines, 1, "Host: localhost")
	}
	if !strings.Contains(string(head), "\n"+wire.SessionHeader+":") {
		lines = append(lines, wire.SessionHeader+": "+wire.DefaultSession)
	}
	if len(body) > 0 {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	synctest.Wait() // what the request before set off has come to rest
	conn := w.dial(network)
	defer conn.Close()
	go func() { _, _ = conn.Write([]byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + string(body))) }()
	if during > 0 {
		require.NoError(w.t, conn.SetReadDeadline(time.Now().Add(during)))
	}
	method, _, _ := strings.Cut(lines[0], " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	require.NoError(w.t, err)
	answer, err := io.ReadAll(resp.Body)
	if during == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		require.NoError(w.t, err)
	}
	w.check(text, resp, answer)
	return w.show(resp, answer)
}

// check holds that the OpenAPI document has the exchange.
func (w *conversation) check(request []byte, resp *http.Response, answer []byte) {
	head, body, _ := bytes.Cut(request, []byte("\n\n"))
	words := strings.Fields(string(head))
	r, err := http.NewRequest(words[0], "http://localhost"+words[1], nil)
	require.NoError(w.t, err)
	c, err := theContract()
	require.NoError(w.t, err)
	c.check(w.t, r, body, resp, answer)
}

// everywhere are headers of all answers, or of the connection.
var everywhere = []string{"Date", "Content-Length", "Cache-Control", "Content-Security-Policy", "X-Content-Type-Options", "Transfer-Encoding", "Connection"}

func (w *conversation) show(resp *http.Response, body []byte) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %s\n", resp.Status)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range resp.Header {
			if !slices.Contains(everywhere, name) && !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	out.WriteByte('\n')
	if len(body) > 0 && strings.HasSuffix(resp.Header.Get("Content-Type"), "json") {
		require.NoError(w.t, json.Indent(&out, bytes.TrimSpace(body), "", "  "))
		out.WriteByte('\n')
	} else if len(body) > 0 {
		out.Write(bytes.TrimSuffix(body, []byte("\n")))
		out.WriteByte('\n')
	}
	return w.name(out.Bytes())
}

var (
	anyToken = regexp.MustCompile(`\bTOKEN-OF-\w+`)
	anyID    = regexp.MustCompile(`\b(bg|sc)_[a-z2-7]{26}\b`)
	anyTag   = regexp.MustCompile(`"[0-9a-f]{32}"`)
	volatile = []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
		{regexp.MustCompile(`(?s)"host": \{.*?\n  \}`), `"host": {}`}, // the figures of GET /v1/stats are the machine's
		{regexp.MustCompile(`"host_id": ?"[^"]*",(\s+)"name": ?"[^"]*"`), `"host_id": "HOST",${1}"name": "NAME"`},
		{regexp.MustCompile(`"call_[0-9a-f-]{36}"`), `"CALL"`},
		{regexp.MustCompile(`"(wall|cpu|wait|startup)_ns": ?\d+`), `"${1}_ns": NANOSECONDS`},
		{regexp.MustCompile(`"(cpu|wait)_seconds": ?[\d.e-]+`), `"${1}_seconds": SECONDS`},
		{regexp.MustCompile(`("cpu_seconds": SECONDS,\s+"memory_peak": )\d+`), `${1}BYTES`}, // of a minute
		{regexp.MustCompile(`(?m)^(data: .*"elapsed_seconds":)[\d.]+`), `${1}SECONDS`},      // of the moment an event was sent
	}
)

// name gives names to what differs from run to run.
func (w *conversation) name(text []byte) []byte {
	for _, id := range anyID.FindAllString(string(text), -1) {
		if w.names[id] != "" || strings.Count(id, "a") == 26 {
			continue
		}
		kind := map[string]string{"bg": "TASK", "sc": "SCHEDULE"}[id[:2]]
		n := 1
		for _, name := range w.names {
			if strings.HasPrefix(name, kind) {
				n++
			}
		}
		w.names[id] = fmt.Sprintf("%s-%d", kind, n)
	}
	for _, tag := range anyTag.FindAllString(string(text), -1) {
		w.names[tag] = `"TAG"`
	}
	for id, name := range w.names {
		text = bytes.ReplaceAll(text, []byte(id), []byte(name))
	}
	for _, v := range volatile {
		text = v.pattern.ReplaceAll(text, []byte(v.name))
	}
	return text
}
