package httpapi

import ()

// The paths that need no token.
const (
	pathHealth = "/healthz"
	pathReady  = "/readyz"
)

// Routes returns all endpoints. The caller may change what it is given.
func Routes() []Route {
	wait := Param{Name: "wait", Description: "how long to wait for the end, such as 30s; at most 9m"}
	tail := Param{Name: "tail", Description: "characters of the latest output to show, cleaned for a model; at most 16384"}
	limit := Param{Name: "limit", Description: "how many at most; 1 to 200, and 50 if absent"}
	return []Route{
		endpoint("GET", "/v1/tools", "The tools a session may call", (*API).tools),
		endpoint("GET", "/v1/tools/{tool}", "One tool", (*API).tool),
		endpoint("POST", "/v1/calls", "Call a tool and wait for its result", (*API).call).begins(),

		endpoint("POST", "/v1/runs", "Start a tool as a background run; 200 if the idempotency key found an earlier one", (*API).spawn).
			created().begins().header(KeyHeader, "the same key, tool and arguments give the same run; at most 128 characters"),
		endpoint("GET", "/v1/runs", "The runs of the session, newest first; or those named by id", (*API).runs).query(
			limit, Param{Name: "before", Description: "only runs older than the one with this id: the next page"},
			Param{Name: "active", Description: "true leaves out runs that have ended"},
			Param{Name: "id", Description: "a run; up to 20 of them", Many: true},
			wait, Param{Name: "until", Description: "with id and wait: any or all of the runs; any if absent"}, tail),
		endpoint("GET", "/v1/runs/{run}", "One run", (*API).getRun).query(
			wait, tail, Param{Name: "cursor", Description: "with tail: only output after an earlier answer's cursor"}),
		endpoint("POST", "/v1/runs/{run}/stop", "Stop a run; answers with its true state when it has ended, or after the grace", (*API).stop),
		stream("/v1/runs/{run}/output", "The raw output, by ranges of bytes; as events it is followed until the run ends",
			[]string{plainText, eventStream}, (*API).output).header("Range", "bytes of the whole log").
			header("Last-Event-ID", "follow from there: the id of the last event"),
		stream("/v1/runs/{run}/artifacts/{name}", "A file of an ended run: output.log or result.json",
			[]string{plainText, "application/json"}, (*API).artifact).header("Range", "bytes of the file"),

		endpoint("GET", "/v1/notices", "The runs that have ended and were not seen yet; reading them changes nothing", (*API).notices).query(limit),
		endpoint("POST", "/v1/notices/ack", "Take notices: they are not told again", (*API).acknowledge),

		endpoint("POST", "/v1/schedules", "Start a tool at times of a cron expression, or once", (*API).schedule).created().begins(),
		endpoint("GET", "/v1/schedules", "The schedules of the session, newest first", (*API).schedules).query(
			Param{Name: "enabled", Description: "true leaves out those that will not fire again"}),
		endpoint("GET", "/v1/schedules/{schedule}", "One schedule", (*API).getSchedule),
		endpoint("DELETE", "/v1/schedules/{schedule}", "Disable a schedule; a run it started goes on", (*API).unschedule),

		stream("/v1/events", "What happens to the tools, and to the runs and schedules of the session, from now on", []string{eventStream}, (*API).events),
		endpoint("GET", "/v1/session", "What a model has to know of the session's active runs", (*API).getSession),
		endpoint("DELETE", "/v1/session", "End the session: its parked calls are stopped", (*API).endSession),
		endpoint("GET", "/v1/stats", "Counts of all sessions", (*API).stats),

		endpoint("GET", pathHealth, "Whether the process answers", (*API).health),
		endpoint("GET", pathReady, "Whether the server takes work", (*API).ready),
	}
}
