package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

const mallory = "Host: localhost\nToolhost-Session: mallory\n"

// leaveUntaken has a client leave answers untaken until one more list of tools is the
// last that it gets.
func (f *fixture) leaveUntaken() (untaken []net.Conn) {
	f.t.Helper()
	for size := 0; f.AnswerBytes()+size <= httpapi.MaxAnswers/4; size = f.AnswerBytes() / len(untaken) {
		untaken = append(untaken, f.begin("GET /v1/tools HTTP/1.1\n"+mallory+"\n").(net.Conn))
		synctest.Wait()
	}
	require.Less(f.t, f.AnswerBytes(), httpapi.MaxAnswers/4)
	return untaken
}

// A completed request is always answered, however much its client has left unread:
// a client with too much unread is refused before any work is done.
func TestNoResultIsLost(t *testing.T) {
	args := `{"pad":"` + strings.Repeat("x", 2<<20) + `"}`
	modern := strings.Replace(fmt.Sprintf(modernCall, 1, "large"), `"arguments":{}`, `"arguments":`+args, 1)
	for name, test := range map[string]struct{ head, body string }{
		"a call":         {"POST /v1/calls HTTP/1.1\n", `{"tool":"large","args":` + args + `}`},
		"a call of MCP":  {"POST /mcp HTTP/1.1\nAccept: application/json, text/event-stream\nMcp-Protocol-Version: 2026-07-28\nMcp-Method: tools/call\nMcp-Name: large\n", modern},
		"a spawn, again": {"POST /v1/runs HTTP/1.1\nIdempotency-Key: once\n", `{"tool":"large","args":` + args + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, _ := serveMCP(t, httpapi.Config{}, "echo", "large", "wordy")
				post := func() net.Conn {
					conn := f.begin(fmt.Sprintf("%sContent-Type: application/json\nContent-Length: %d\n%s\n", test.head, len(test.body), mallory)).(net.Conn)
					go func() { _, _ = io.WriteString(conn, test.body) }()
					synctest.Wait()
					return conn
				}
				if strings.HasPrefix(name, "a spawn") {
					resp, err := http.ReadResponse(bufio.NewReader(post()), nil)
					require.NoError(t, err)
					require.Equal(t, http.StatusCreated, resp.StatusCode)
					synctest.Wait()
				}
				untaken := f.leaveUntaken()
				made := post()
				require.GreaterOrEqual(t, f.AnswerBytes(), httpapi.MaxAnswers/4, "its answer counts")
				resp, err := http.ReadResponse(bufio.NewReader(post()), nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				require.Equal(t, "1", resp.Header.Get("Retry-After"))
				require.Equal(t, wire.CodeLimit, f.refused("DELETE", "/v1/session", "", "Toolhost-Session", "mallory").Code)
				f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Toolhost-Session", "ana")
				resp, err = http.ReadResponse(bufio.NewReader(made), nil)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Contains(t, string(text), strings.Repeat("x", 2<<20))
				for _, conn := range untaken {
					_ = conn.Close()
				}
				synctest.Wait()
				require.Zero(t, f.AnswerBytes())
				require.Zero(t, f.OpenAnswers())
				f.ask("POST", "/v1/calls", `{"tool":"echo"}`, "Toolhost-Session", "mallory")
			})
		})
	}
}

// spawnLarge has a tool give back so many bytes, and returns the id of the run.
func (f *fixture) spawnLarge(size int) string {
	f.t.Helper()
	id, _ := f.ask("POST", "/v1/runs", `{"tool":"large","args":{"pad":"`+strings.Repeat("x", size)+`"}}`, "Toolhost-Session", "mallory")["task_id"].(string)
	synctest.Wait()
	return id
}

// An answer about several runs has of their results what is not too much, and
// says how large the others are. A run alone is whole.
func TestLargeResultsOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "large")
		sizes := []int{900 << 10, 900 << 10, 100, 7 << 20}
		var ids []string
		for _, size := range sizes {
			ids = append(ids, f.spawnLarge(size))
		}
		resp, text := f.do("GET", "/v1/runs?id="+strings.Join(ids, "&id="), "", "Toolhost-Session", "mallory")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Less(t, len(text), 1<<20+8<<10)
		var several, alone struct {
			wire.Run
			Runs []wire.Run
		}
		require.NoError(t, json.Unmarshal([]byte(text), &several))
		around := len(`{"pad":""}`)
		for i, run := range several.Runs {
			if i == 0 || i == 2 {
				require.Len(t, run.Result, sizes[i]+around)
				require.Zero(t, run.ResultBytes)
				continue
			}
			require.Empty(t, run.Result)
			require.Equal(t, sizes[i]+around, run.ResultBytes)
			require.Contains(t, run.Args, "xxx")
			require.NotEmpty(t, run.ResultPath)
		}
		_, text = f.do("GET", "/v1/runs/"+ids[3], "", "Toolhost-Session", "mallory")
		require.NoError(t, json.Unmarshal([]byte(text), &alone))
		require.Len(t, alone.Result, sizes[3]+around)
		require.Zero(t, alone.ResultBytes)
	})
}

// A large run is counted once, and a client that leaves too many untaken gets no more.
func TestLargeRunsAreBounded(t *testing.T) {
	for name, path := range map[string]string{"a run": "/v1/runs/%s", "by id": "/v1/runs?id=%s"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const size = 7 << 20
				f := serve(t, httpapi.Config{}, "large")
				get := "GET " + fmt.Sprintf(path, f.spawnLarge(size)) + " HTTP/1.1\n" + mallory + "\n"
				var untaken []net.Conn
				for n := range httpapi.MaxAnswers/4/size + 1 {
					untaken = append(untaken, f.begin(get).(net.Conn))
					synctest.Wait()
					require.InDelta(t, min((n+1)*size, httpapi.MaxAnswers/4), f.AnswerBytes(), 16<<10) // with what surrounds the results
				}
				resp, err := http.ReadResponse(bufio.NewReader(f.begin(get)), nil)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.Less(t, len(text), 1<<10)
				require.NoError(t, err)
				require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				for _, conn := range untaken {
					_ = conn.Close()
				}
				synctest.Wait()
				require.Zero(t, f.AnswerBytes())
			})
		})
	}
}
