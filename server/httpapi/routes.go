package httpapi

import (
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/identity"
)

const (
	pathHealth  = "/healthz"
	pathReady   = "/readyz"
	pathOpenAPI = "/v1/openapi.json"

	// The paths of the OAuth metadata: of this server, and of its MCP endpoint
	// (RFC 9728, 3.1).
	pathMetadata    = identity.MetadataPath
	pathMetadataMCP = pathMetadata + pathMCP
)

// isHealth reports whether a path needs no login and is always answered.
func isHealth(path string) bool { return path == pathHealth || path == pathReady }

// isMetadata reports whether a path is public, also to other web pages.
func isMetadata(path string) bool { return path == pathMetadata || path == pathMetadataMCP }

// The pages of lists.
const (
	defaultPage = 50
	maxPage     = 200
)

// routes returns all endpoints.
func routes() []route {
	limit := number("limit", 1, maxPage)
	wait, tail := duration("wait"), number("tail", 0, server.MaxChars)
	before := formed("before", runForm, "expected an id: bg_ and 26 characters")
	ids := formed("id", runForm, "expected ids: bg_ and 26 characters")
	ids.many = server.MaxIDs
	until := oneOf("until", server.UntilAny, server.UntilAll)
	cursor := formed("cursor", placeForm, "expected the cursor of an earlier answer")

	return []route{
		endpoint("GET", "/v1/tools", (*API).tools),
		endpoint("GET", "/v1/tools/{tool}", (*API).tool),
		endpoint("POST", "/v1/calls", (*API).call).beginning(),

		answers("POST", "/v1/runs", (*API).spawn).beginning(),
		endpoint("GET", "/v1/runs", (*API).runs, limit, before, flag("active"), ids, wait, until, tail),
		endpoint("GET", "/v1/runs/{run}", (*API).getRun, wait, tail, cursor),
		endpoint("POST", "/v1/runs/{run}/stop", (*API).stop),
		endpoint("POST", "/v1/runs/{run}/answers", (*API).answer),
		raw("/v1/runs/{run}/output", (*API).output),
		raw("/v1/runs/{run}/artifacts/{name}", (*API).artifact),

		answers("POST", "/v1/schedules", (*API).schedule).beginning(),
		endpoint("GET", "/v1/schedules", (*API).schedules, flag("enabled")),
		endpoint("GET", "/v1/schedules/{schedule}", (*API).getSchedule),
		endpoint("DELETE", "/v1/schedules/{schedule}", (*API).unschedule),

		endpoint("GET", "/v1/notices", (*API).notices, limit),
		endpoint("POST", "/v1/notices/ack", (*API).acknowledge),
		raw("/v1/events", (*API).events),
		endpoint("GET", "/v1/session", (*API).getSession),
		endpoint("DELETE", "/v1/session", (*API).endSession),
		endpoint("GET", "/v1/stats", (*API).stats).forOperator(),

		raw(pathOpenAPI, (*API).openAPI),
		endpoint("GET", pathHealth, (*API).health),
		endpoint("GET", pathReady, (*API).ready),
		endpoint("GET", pathMetadata, (*API).metadata),
		endpoint("GET", pathMetadataMCP, (*API).metadata),
	}
}
