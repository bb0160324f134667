package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// The operator sees who is connected, whichever way, and how busy each client is. A user
// does not.
func TestConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serveUsers(t)
		operator := []string{"Authorization", "Bearer s3cret", wire.SessionHeader, "ops", "User-Agent", "curl/8.5 (x)"}
		connections := func() (all map[string]wire.ClientConnection) {
			var out wire.Connections
			_, text := f.do("GET", "/v1/connections", "", operator...)
			require.NoError(t, json.Unmarshal([]byte(text), &out), text)
			all = map[string]wire.ClientConnection{}
			for _, c := range out.Connections {
				all[strings.Join([]string{c.Protocol, c.User, c.Session}, " ")] = c
			}
			require.Len(t, all, len(out.Connections))
			require.Equal(t, f.service.Connections().List()[0].Protocol, out.Connections[0].Protocol)
			return all
		}

		began := time.Now().UTC()
		require.Equal(t, map[string]wire.ClientConnection{"http  ops": {
			Protocol: "http", Transport: "http", Client: "curl", ClientVersion: "8.5", Session: "ops", Since: began, LastRequestAt: began, InFlight: 1,
		}}, connections())

		time.Sleep(time.Second)
		id := f.legacy(as(t, "ana", wire.SessionHeader, "x"))
		wait := f.begin("GET /v1/events HTTP/1.1\nHost: localhost\nAuthorization: Bearer " + strings.TrimPrefix(as(t, "bo")[1], "Bearer ") + "\nUser-Agent: EventSource\nToolhost-Session: y\n\n")
		for range 3 {
			f.modern(append(as(t, "ana"), wire.SessionHeader, ""), "tools/list", "")
		}
		synctest.Wait()
		all := connections()
		ana := all["mcp ana ana/x"]
		require.Equal(t, []string{"t", "1", "2025-06-18"}, []string{ana.Client, ana.ClientVersion, ana.Revision})
		require.Equal(t, 0, ana.InFlight)
		require.Equal(t, began.Add(time.Second), ana.Since)
		require.Equal(t, 1, all["http bo bo/y"].InFlight)
		require.Equal(t, "EventSource", all["http bo bo/y"].Client)
		require.Equal(t, "2026-07-28", all["mcp ana "].Revision, "requests that name no session count together")
		require.Len(t, all, 4)

		// Who leaves, or is idle for long, is not listed.
		require.NoError(t, wait.Close())
		resp, _ := f.do("DELETE", "/mcp", "", as(t, "ana", mcpHeaders(id)...)...)
		require.Equal(t, 204, resp.StatusCode)
		require.NotContains(t, connections(), "mcp ana ana/x")
		time.Sleep(31 * time.Minute)
		require.Len(t, connections(), 1)

		for _, path := range []string{"/v1/connections"} {
			require.Equal(t, wire.CodeForbidden, f.refused("GET", path, "", as(t, "ana")...).Code)
		}
	})
}
