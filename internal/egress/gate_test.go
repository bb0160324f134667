package egress

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowWorld is a network in virtual time. Each of its servers takes a minute for a
// response, except that /redirect leads to another one at once.
type slowWorld struct {
	client *Client
	policy *Policy
	all    sync.WaitGroup

	mu   sync.Mutex
	sent map[string][]time.Duration // when requests have arrived, by user agent
}

const replyTime = time.Minute

// gateConfig has the limits of a client; zero fields mean its own.
type gateConfig struct {
	shared             bool
	perHost, perPlugin int
}

func newSlowWorld(t *testing.T, cfg gateConfig, plugins ...string) *slowWorld {
	w := &slowWorld{sent: map[string][]time.Duration{}, policy: policy(t, Rule{URL: "http://*.example.test/*"})}
	var err error
	w.client, err = New(Config{Shared: cfg.shared})
	require.NoError(t, err)
	w.client.hosts.max = cmp.Or(cfg.perHost, perHost)
	w.client.plugins.max = cmp.Or(cfg.perPlugin, perPlugin)
	began := time.Now()
	for _, plugin := range plugins {
		w.client.pools[poolKey{plugin: plugin}] = &pool{transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			w.all.Go(func() { w.serve(there, began) })
			return here, nil
		}}}
	}
	return w
}

func (w *slowWorld) serve(conn net.Conn, began time.Time) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	if req.URL.Path == "/redirect" {
		io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: http://other.example.test/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}

	w.mu.Lock()
	w.sent[req.UserAgent()] = append(w.sent[req.UserAgent()], time.Since(began))
	w.mu.Unlock()
	time.Sleep(replyTime)
	io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}

// get makes a request that may itself take a bit more than the server needs.
func (w *slowWorld) get(ctx context.Context, plugin, client, url string) error {
	call := w.client.Call(CallConfig{Plugin: plugin, Client: client, Policy: w.policy})
	_, err := call.Do(ctx, &Request{URL: url, Timeout: replyTime + time.Second, Header: http.Header{"User-Agent": {client}}, Redirects: 1})
	return err
}

// close waits for the servers.
func (w *slowWorld) close() {
	w.client.Close()
	w.all.Wait()
}

// TestFairRequests has two sessions and four users ask 20 slow servers, all of one plugin:
// nobody waits longer than for the requests of its own share, and waiting does not use up
// the time of a request.
func TestFairRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, gateConfig{shared: true}, "p")
		defer w.close()
		clients := []string{"main", "work", "ana/", "bo/", "cy/", "dan/"}
		var all sync.WaitGroup
		for _, client := range clients {
			for i := range 20 {
				all.Go(func() {
					require.NoError(t, w.get(t.Context(), "p", client, fmt.Sprintf("http://s%d.example.test/", i)))
				})
			}
			synctest.Wait()
		}
		all.Wait()

		share := perPlugin / len(clients)
		for _, client := range clients {
			require.Len(t, w.sent[client], 20)
			for i, at := range w.sent[client] {
				require.LessOrEqual(t, at, time.Duration(1+i/share)*replyTime, "request %d of %s", i, client)
			}
		}
	})
}

// TestSharesOfRequests: one client leaves permits of a plugin and of a host to others. A
// request that gets none before its call ends says what it waited for.
func TestSharesOfRequests(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    gateConfig
		greedy int // requests in flight
		why    string
	}{
		"plugin":           {gateConfig{shared: true, perPlugin: 8}, 6, "at most 6 http requests of one client of one plugin are in flight at a time: retry when others have ended"},
		"host":             {gateConfig{shared: true, perHost: 8}, 6, "at most 6 http requests of one client to one host are in flight at a time: retry when others have ended"},
		"nothing is taken": {gateConfig{perHost: 8}, 8, "at most 8 http requests to one host are in flight at a time: retry when others have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSlowWorld(t, c.cfg, "p")
				defer w.close()
				ctx, cancel := context.WithTimeout(t.Context(), replyTime-time.Second)
				defer cancel()
				var all sync.WaitGroup
				for range c.greedy {
					all.Go(func() { require.NoError(t, w.get(t.Context(), "p", "greedy", "http://s.example.test/")) })
				}
				synctest.Wait()

				err := w.get(ctx, "p", "greedy", "http://s.example.test/redirect")
				require.EqualError(t, err, "the http request was not sent: "+c.why)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				err = w.get(t.Context(), "p", "other", "http://s.example.test/")
				require.NoError(t, err)
				all.Wait()

				first := []time.Duration{replyTime - time.Second}
				if !c.cfg.shared {
					first[0] = replyTime // it got the first permit that came free
				}
				require.Equal(t, first, w.sent["other"])
				require.Empty(t, w.client.hosts.all)
				require.Empty(t, w.client.plugins.all)
			})
		})
	}
}

// TestRedirectWaits: a redirect to a busy host waits too, and that does not count as time
// of the request.
func TestRedirectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWorld(t, gateConfig{perHost: 1}, "p", "q")
		defer w.close()
		var all sync.WaitGroup
		for i, url := range slices.Repeat([]string{"http://other.example.test/"}, 2) {
			all.Go(func() { require.NoError(t, w.get(t.Context(), "q", fmt.Sprint(i), url)) })
		}
		synctest.Wait()
		require.NoError(t, w.get(t.Context(), "p", "redirected", "http://s.example.test/redirect"))
		all.Wait()
		require.Equal(t, []time.Duration{2 * replyTime}, w.sent["redirected"])
	})
}

// TestOneBusyGate: requests that wait for a host leave the permits of their plugin to requests
// to other hosts, and requests that wait for their plugin leave those of the host to other
// plugins.
func TestOneBusyGate(t *testing.T) {
	for name, c := range map[string]struct {
		busy, plugin, url string
		cfg               gateConfig
	}{
		"host":   {"q", "p", "http://other.example.test/", gateConfig{perHost: 2, perPlugin: 2}},
		"plugin": {"p", "q", "http://s.example.test/", gateConfig{perHost: 4, perPlugin: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSlowWorld(t, c.cfg, "p", "q")
				defer w.close()
				var all sync.WaitGroup
				for _, plugin := range []string{c.busy, c.busy, "p", "p", "p", "p"} {
					all.Go(func() { require.NoError(t, w.get(t.Context(), plugin, "many", "http://s.example.test/")) })
					synctest.Wait()
				}

				require.NoError(t, w.get(t.Context(), c.plugin, "one", c.url))
				all.Wait()
				require.Equal(t, []time.Duration{0}, w.sent["one"])
				require.Equal(t, []time.Duration{0, 0, replyTime, replyTime, 2 * replyTime, 2 * replyTime}, w.sent["many"])
			})
		})
	}
}
