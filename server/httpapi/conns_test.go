package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// limited serves a fixture's API on another listener, with a limited number of
// connections. From then on, requests through the fixture go there.
func (f *fixture) limited(most int) {
	f.t.Helper()
	synctest.Wait() // for the other one
	l := &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- f.ServeLimited(l, most) }()
	f.t.Cleanup(func() {
		_ = l.Close()
		err := <-served
		require.True(f.t, errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed), "%v", err)
	})
	f.net = l
}

// isOpen reports whether the server has not closed a connection that it has
// nothing to say on.
func isOpen(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

const events = "GET /v1/events HTTP/1.1\nHost: localhost\nToolhost-Session: "

// Idle connections give way to new ones, those first that have been idle the longest.
func TestIdleConnectionsGiveWay(t *testing.T) {
	for name, idle := range map[string]func(f *fixture) net.Conn{
		"no head": func(f *fixture) net.Conn { return f.dial("tcp") },
		"half a head": func(f *fixture) net.Conn {
			return f.begin("POST /v1/calls HTTP/1.1\nHost: localhost\n").(net.Conn)
		},
		"between requests": func(f *fixture) net.Conn {
			conn := f.dial("tcp")
			exchange(f.t, conn, newRequest(f.t, "GET", "/v1/tools", ""))
			return conn
		},
		"refused, with a body to come": func(f *fixture) net.Conn {
			conn := f.begin("POST /v1/calls HTTP/1.1\nHost: elsewhere\nContent-Length: 9\n\n").(net.Conn)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(f.t, err)
			require.Equal(f.t, http.StatusForbidden, resp.StatusCode)
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "sleeper", "echo")
				f.limited(16)
				stream := f.begin(events + "ana\n\n").(net.Conn)
				go func() { _, _ = io.Copy(io.Discard, stream) }()
				synctest.Wait()
				var conns []net.Conn
				for range 15 {
					conns = append(conns, idle(f))
					time.Sleep(time.Millisecond)
				}
				if strings.HasPrefix(name, "refused") {
					for range 100 { // there would be no room for any other
						idle(f)
					}
					f.ask("POST", "/v1/calls", `{"tool":"echo"}`)
					return
				}
				require.True(t, isOpen(conns[0]))
				for i := range 5 {
					f.ask("POST", "/v1/calls", `{"tool":"echo"}`)
					synctest.Wait()
					if i == 0 { // and its own connection has ended, so that the next has room
						require.False(t, isOpen(conns[0]))
					}
				}
				require.True(t, isOpen(conns[14]))
				for range 100 {
					idle(f)
				}
				require.EqualValues(t, 1, f.ask("GET", "/v1/stats", "")["open_answers"], "what is in use stays")
			})
		})
	}
}

// Active requests are not dropped for others. When there are too many, the next one
// is refused, but health checks are always answered.
func TestBusyConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		f.limited(64) // of which 60 can be busy, 15 of them with one client
		for i := range 4 {
			session := fmt.Sprintf("mallory%d", i)
			f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Toolhost-Session", "ana")
			for range 15 {
				f.begin("POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 9\nToolhost-Session: " + session + "\n\n{")
			}
			synctest.Wait()
			p := f.refused("GET", "/v1/tools", "", "Toolhost-Session", session)
			require.Equal(t, wire.CodeLimit, p.Code)
			require.Equal(t, 15, p.Max)
		}
		p := f.refused("GET", "/v1/tools", "", "Toolhost-Session", "ana")
		require.Equal(t, 60, p.Max)
		require.Equal(t, "ok", f.ask("GET", "/healthz", "")["status"])
		time.Sleep(21 * time.Second) // their bodies are too late
		f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Toolhost-Session", "ana")
	})
}

// The bodies of a client take a limited amount of memory, even those of a slow client.
func TestBodiesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		const size = 8 << 20
		begin := func(session string) net.Conn {
			conn := f.begin(fmt.Sprintf("POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: %d\nToolhost-Session: %s\n\n", size, session)).(net.Conn)
			go func() { _, _ = io.WriteString(conn, strings.Repeat(" ", size-1)) }()
			return conn
		}
		for range httpapi.MaxBodies / 4 / size {
			begin("mallory")
		}
		synctest.Wait()
		resp, err := http.ReadResponse(bufio.NewReader(begin("mallory")), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		f.ask("POST", "/v1/calls", `{"tool":"echo","args":{"n":`+strings.Repeat(" ", 4<<20)+`1}}`, "Toolhost-Session", "ana")
		f.ask("GET", "/v1/tools", "", "Toolhost-Session", "mallory")
		time.Sleep(time.Minute)
		f.ask("POST", "/v1/calls", `{"tool":"echo","args":{"n":`+strings.Repeat(" ", 4<<20)+`1}}`, "Toolhost-Session", "mallory")
	})
}

// The unread parts of large answers take a limited amount of memory, however many answers
// clients request.
func TestUntakenAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "wordy")
		begin := func(session string) net.Conn {
			return f.begin("GET /v1/tools HTTP/1.1\nHost: localhost\nToolhost-Session: " + session + "\n\n").(net.Conn)
		}
		first := begin("mallory")
		synctest.Wait()
		size := f.AnswerBytes()
		require.Greater(t, size, 500<<10)
		taken := []net.Conn{first}
		for range httpapi.MaxAnswers / 4 / size {
			taken = append(taken, begin("mallory"))
		}
		synctest.Wait()
		resp, err := http.ReadResponse(bufio.NewReader(begin("mallory")), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		f.ask("GET", "/v1/tools", "", "Toolhost-Session", "ana")
		for _, conn := range taken {
			_ = conn.Close()
		}
		synctest.Wait()
		require.Zero(t, f.AnswerBytes())
		f.ask("GET", "/v1/tools", "", "Toolhost-Session", "mallory")
	})
}

// A client that keeps sending requests and reads no answer loses its connection, even if
// the answers have no body.
func TestUnreadAnswers(t *testing.T) {
	for name, request := range map[string]string{
		"no body":        "HEAD /healthz HTTP/1.1\nHost: localhost\n\n",
		"no content":     "DELETE /v1/session HTTP/1.1\nHost: localhost\n\n",
		"a body":         "GET /v1/tools HTTP/1.1\nHost: localhost\n\n",
		"refused":        "GET /v1/tools HTTP/1.1\nHost: elsewhere\n\n",
		"no request":     "what\n\n",
		"too large":      "GET / HTTP/1.1\nX: " + strings.Repeat("x", 64<<10) + "\n\n",
		"expects":        "POST /v1/calls HTTP/1.1\nHost: localhost\nExpect: a miracle\nContent-Length: 9\n\n",
		"continue":       "POST /v1/calls HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 9\n\n",
		"all options":    "OPTIONS * HTTP/1.1\nHost: localhost\n\n",
		"unknown coding": "POST /v1/calls HTTP/1.1\nHost: localhost\nTransfer-Encoding: what\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "echo")
				conn := f.dial("tcp")
				began, lost := time.Now(), make(chan time.Duration)
				go func() {
					for {
						if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
							lost <- time.Since(began)
							return
						}
					}
				}()
				f.ask("POST", "/v1/calls", `{"tool":"echo"}`)
				require.LessOrEqual(t, <-lost, 51*time.Second)
			})
		})
	}
}

// Odd requests are refused, and no request is taken for two.
func TestOddRequests(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // the beginnings of the answers, after HTTP/1.1
	}{
		"HTTP/2 at once":         {"PRI * HTTP/2.0\n\nSM\n\n", []string{"403"}},
		"an upgrade to HTTP/2":   {"GET /healthz HTTP/1.1\nHost: localhost\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\n\n", []string{"200"}},
		"two lengths":            {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Length: 2\nContent-Length: 4\n\n{}", []string{"400"}},
		"a length with a sign":   {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Length: +2\n\n{}", []string{"400"}},
		"a length and chunks":    {"POST /healthz HTTP/1.1\nHost: localhost\nContent-Length: 40\nTransfer-Encoding: chunked\n\n0\n\nGET /nowhere HTTP/1.1\nHost: localhost\n\n", []string{"405"}},
		"two codings":            {"POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n", []string{"501"}},
		"a space in a header":    {"POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding : chunked\n\n0\n\n", []string{"400"}},
		"chunks that lie":        {"POST /v1/calls HTTP/1.1\nHost: localhost\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n2;x=\ty\n{}x\n0\n\n", []string{"400"}},
		"another host in front":  {"GET http://elsewhere/healthz HTTP/1.1\nHost: localhost\n\n", []string{"403"}},
		"another host behind":    {"GET http://localhost/healthz HTTP/1.1\nHost: elsewhere\n\n", []string{"200"}},
		"two hosts":              {"GET /healthz HTTP/1.1\nHost: localhost\nHost: elsewhere\n\n", []string{"400"}},
		"no host":                {"GET /healthz HTTP/1.1\n\n", []string{"400"}},
		"no host, HTTP/1.0":      {"GET /healthz HTTP/1.0\n\n", []string{"403"}},
		"a host with a user":     {"GET /healthz HTTP/1.1\nHost: localhost@elsewhere\n\n", []string{"400"}},
		"a host with a line":     {"GET /healthz HTTP/1.1\nHost: localhost\x00\n\n", []string{"400"}},
		"CONNECT":                {"CONNECT localhost:22 HTTP/1.1\nHost: localhost:22\n\n", []string{"404"}},
		"TRACE":                  {"TRACE /v1/tools HTTP/1.1\nHost: localhost\nX: secret\n\n", []string{"405"}},
		"OPTIONS":                {"OPTIONS /v1/tools HTTP/1.1\nHost: localhost\nAccess-Control-Request-Method: POST\n\n", []string{"405"}},
		"a hidden slash":         {"GET /v1%2ftools HTTP/1.1\nHost: localhost\n\n", []string{"404"}},
		"two slashes":            {"GET //v1/tools HTTP/1.1\nHost: localhost\n\n", []string{"404"}},
		"dots":                   {"GET /healthz/../v1/tools HTTP/1.1\nHost: localhost\n\n", []string{"404"}},
		"hidden dots":            {"GET /healthz/%2e%2e/v1/tools HTTP/1.1\nHost: localhost\n\n", []string{"404"}},
		"a NUL":                  {"GET /v1/tools/echo%00 HTTP/1.1\nHost: localhost\n\n", []string{"404"}},
		"a line in a path":       {"GET /v1/runs/x%0d%0aX:%20y HTTP/1.1\nHost: localhost\n\n", []string{"400"}},
		"a line in a session":    {"GET /v1/tools HTTP/1.1\nHost: localhost\nToolhost-Session: a\n b\n\n", []string{"400"}},
		"a header without name":  {"GET /v1/tools HTTP/1.1\nHost: localhost\n: x\n\n", []string{"400"}},
		"HTTP/1.1 with pipeline": {"GET /healthz HTTP/1.1\nHost: localhost\n\nGET /nowhere HTTP/1.1\nHost: localhost\n\n", []string{"200", "404"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := serve(t, httpapi.Config{}, "echo")
				conn := f.dial("tcp")
				go func() { _, _ = io.WriteString(conn, strings.ReplaceAll(test.text, "\n", "\r\n")) }()
				var answers []string
				for r := bufio.NewReader(conn); ; {
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						break
					}
					text, _ := io.ReadAll(resp.Body)
					answers = append(answers, resp.Status[:3])
					require.NotContains(t, string(text), "secret")
					require.Equal(t, 1, resp.ProtoMajor)
					require.Empty(t, resp.Header.Get("X"))
				}
				require.Equal(t, test.want, answers)
				require.NotContains(t, f.logs.String(), `"level":"WARN"`)
				require.NotContains(t, f.logs.String(), `"level":"ERROR"`)
				f.ask("POST", "/v1/calls", `{"tool":"echo"}`)
			})
		})
	}
}
