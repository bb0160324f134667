package httpapi

import (
	"slices"

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

// isHealth reports whether a path is a health check, which needs no login and is always
// served.
func isHealth(path string) bool { return path == pathHealth || path == pathReady }

// isMetadata reports whether a path is OAuth metadata, which pages of any origin may read.
func isMetadata(path string) bool { return path == pathMetadata || path == pathMetadataMCP }

// The page sizes of lists.
const (
	defaultPage = 50
	maxPage     = 200
)

// Parameters of several endpoints.
var (
	limitParam = number("limit", 1, maxPage)
	waitParam  = duration("wait")
	tailParam  = number("tail", 0, server.MaxChars)
	ofSession  = formed("of_session", textForm, "expected the name of a session, of up to 128 characters")
)

// expectedRun describes the ids that runForm matches.
const expectedRun = "expected the id of a run, which begins with bg_"

// routes returns all endpoints.
func routes() []route {
	return slices.Concat(callRoutes(), runRoutes(), scheduleRoutes(), sessionRoutes(), operatorRoutes(), publicRoutes())
}

func callRoutes() []route {
	return []route{
		endpoint("GET", "/v1/tools", listTools, flag("all")),
		endpoint("GET", "/v1/declarations", listDeclarations, limitParam, formed("query", queryForm, "expected up to 400 characters")),
		endpoint("GET", "/v1/tools/{tool}", getTool),
		endpoint("POST", "/v1/calls", callTool).beginning(),
		endpoint("GET", "/v1/calls", listCalls, limitParam, formed("tool", textForm, "expected a name of up to 128 characters"), flag("failed")),
	}
}

func runRoutes() []route {
	before := formed("before", runForm, expectedRun)
	parent := formed("parent", runForm, expectedRun)
	ids := formed("id", runForm, expectedRun)
	ids.many = server.MaxIDs
	until := oneOf("until", server.UntilAny, server.UntilAll)
	cursor := formed("cursor", placeForm, "expected the cursor of an earlier response")

	return []route{
		answers("POST", "/v1/runs", spawnRun).beginning(),
		endpoint("GET", "/v1/runs", listRuns, append(filters(), limitParam, before, flag("active"), flag(allSessions), parent, ids, waitParam, until, tailParam)...),
		endpoint("GET", "/v1/runs/{run}", getRun, flag(allSessions), waitParam, tailParam, cursor),
		endpoint("DELETE", "/v1/runs/{run}", removeRun),
		endpoint("POST", "/v1/runs/{run}/stop", stopRun),
		endpoint("POST", "/v1/runs/{run}/answers", answerRun),
		answers("POST", "/v1/runs/{run}/rerun", rerun).beginning(),
		answers("POST", "/v1/runs/{run}/messages", sendMessage),
		endpoint("GET", "/v1/runs/{run}/messages", listMessages),
		endpoint("GET", "/v1/runs/{run}/calls", listRunCalls),
		raw("/v1/runs/{run}/output", readOutput),
		raw("/v1/runs/{run}/artifacts/{name}", readArtifact),
	}
}

func scheduleRoutes() []route {
	return []route{
		answers("POST", "/v1/schedules", createSchedule).beginning(),
		endpoint("GET", "/v1/schedules", listSchedules, flag("enabled"), flag(allSessions)),
		endpoint("GET", "/v1/schedules/{schedule}", ofSchedule(server.Schedules.Get)),
		endpoint("DELETE", "/v1/schedules/{schedule}", ofSchedule(server.Schedules.Remove)),
		endpoint("POST", "/v1/schedules/{schedule}/disable", ofSchedule(server.Schedules.Disable)),
		endpoint("POST", "/v1/schedules/{schedule}/enable", ofSchedule(server.Schedules.Enable)),
		answers("POST", "/v1/schedules/{schedule}/fire", fireSchedule).beginning(),
	}
}

func sessionRoutes() []route {
	version := formed("version", versionForm, "expected the version of a value")
	ofUser := param{name: "of_user", valid: identity.IsUser, expected: "expected the name of a user: up to 64 letters, digits and . _ : @ -"}

	return []route{
		endpoint("GET", "/v1/notices", listNotices, limitParam),
		endpoint("POST", "/v1/notices/ack", acknowledgeNotices),
		raw("/v1/events", watchEvents, flag("approvals")),
		endpoint("GET", "/v1/session", getSession),
		endpoint("DELETE", "/v1/session", endSession),
		endpoint("GET", "/v1/session/values", listValues),
		endpoint("GET", "/v1/session/values/{key}", getValue),
		endpoint("PUT", "/v1/session/values/{key}", putValue),
		endpoint("DELETE", "/v1/session/values/{key}", deleteValue, version),
		endpoint("GET", "/v1/secrets", listSecrets, ofUser),
		endpoint("PUT", "/v1/secrets/{secret}", setSecret, ofUser),
		endpoint("DELETE", "/v1/secrets/{secret}", removeSecret, ofUser),
	}
}

func operatorRoutes() []route {
	return []route{
		endpoint("GET", "/v1/approvals", listApprovals, limitParam, formed("after", runForm, expectedRun)).forOperator(),
		endpoint("GET", "/v1/approvals/{run}", getApproval).forOperator(),
		endpoint("POST", "/v1/approvals/{run}", decideApproval).forOperator(),
		endpoint("GET", "/v1/kept_approvals", listKeptApprovals).forOperator(),
		endpoint("DELETE", "/v1/kept_approvals/{tool}", revokeApproval, ofSession).forOperator(),
		endpoint("GET", "/v1/kv", listStores).forOperator(),
		endpoint("GET", "/v1/kv/{plugin}", listStore, ofSession, formed("prefix", valueKeyForm, expectedKey), formed("after", valueKeyForm, expectedKey), limitParam).forOperator(),
		endpoint("DELETE", "/v1/kv/{plugin}", clearStore, ofSession).forOperator(),
		endpoint("GET", "/v1/kv/{plugin}/{key}", getStored, ofSession).forOperator(),
		endpoint("DELETE", "/v1/kv/{plugin}/{key}", deleteStored, ofSession).forOperator(),
		endpoint("POST", "/v1/reload", reload).beginning().forOperator(),
		route{method: "POST", path: "/v1/backup", handle: backup}.beginning().forOperator(),
		endpoint("GET", "/v1/stats", getStats).forOperator(),
		endpoint("GET", "/v1/connections", getConnections).forOperator(),
		endpoint("GET", "/v1/hosts", listHosts).forOperator(),
		endpoint("GET", "/v1/stats/tools", getToolStats).forOperator(),
		endpoint("GET", "/v1/stats/history", getHistory).forOperator(),
	}
}

// publicRoutes returns the routes that describe the server and its health.
func publicRoutes() []route {
	return []route{
		raw(pathOpenAPI, getOpenAPI),
		endpoint("GET", pathHealth, getHealth),
		endpoint("GET", pathReady, getReadiness),
		endpoint("GET", pathMetadata, getMetadata),
		endpoint("GET", pathMetadataMCP, getMetadata),
	}
}
