package httpapi

import (
	"net/http"
	"reflect"

	"github.com/toolhost/toolhost/pkg/background"
)

// The paths that need no token.
const (
	pathHealth = "/healthz"
	pathReady  = "/readyz"
)

//go:generate go run ./internal/openapigen

// Routes returns all endpoints. The caller may change what it is given.
func Routes() []Route {
	routes := []Route{
		endpoint("GET", "/v1/tools", "The tools a session may call", (*API).tools).named("listTools"),
		endpoint("GET", "/v1/tools/{tool}", "One tool", (*API).tool).named("getTool").refuses(CodeNotFound, CodeDenied),
		endpoint("POST", "/v1/calls", "Call a tool and wait for its result", (*API).call).named("callTool").begins().
			doc("The answer is a result also of a call that failed or ran into a limit: its `kind` says so. Only a call that was not made is a problem. "+
				"A call that takes long may be parked: `value` then has the `task_id` of the run it goes on as. A client that leaves before that cancels its call. "+
				"With an `Idempotency-Key` it is refused: a run takes one.").
			refuses(CodeNotFound, CodeDenied, CodeLimit),
	}
	anyone := text("Access-Control-Allow-Origin", "pages of all origins may read it")
	routes = append(routes, runRoutes()...)
	routes = append(routes, scheduleRoutes()...)
	return append(routes,
		endpoint("GET", "/v1/notices", "The runs that have ended and were not seen yet; reading them changes nothing", (*API).notices).named("listNotices").
			query(limit()),
		endpoint("POST", "/v1/notices/ack", "Take notices: they are not told again", (*API).acknowledge).named("acknowledgeNotices").
			doc("An id that the session has no notice of is passed over, so that the request can be repeated."),

		stream("/v1/events", "What happens to the tools, and to the runs and schedules of the session, from now on", []string{eventStream}, (*API).events).named("watchEvents").
			doc("The name of an event is its `kind`. A line that is a comment tells at least each 15 seconds that the server is there.").
			events(EventType{Data: reflect.TypeFor[Event]()}).refuses(CodeLimit),
		endpoint("GET", "/v1/session", "What a model has to know of the session's active runs", (*API).getSession).named("getSession"),
		endpoint("DELETE", "/v1/session", "End the session: its parked calls are stopped", (*API).endSession).named("endSession"),
		endpoint("GET", "/v1/stats", "Counts of all sessions", (*API).stats).named("getStats").common().operator(),
		stream(pathOpenAPI, "This description of the API", []string{jsonMedia}, (*API).openAPI).named("getOpenAPI").common().
			headers(text("If-None-Match", "the `ETag` of an earlier answer")).
			sends(text("ETag", "what the document is known by, for `If-None-Match`")).
			also(http.StatusNotModified, "It is the document of `If-None-Match`."),

		endpoint("GET", pathHealth, "Whether the process answers", (*API).health).named("getHealth").open(),
		endpoint("GET", pathReady, "Whether the server takes work", (*API).ready).named("getReadiness").open().refuses(CodeClosing),

		endpoint("GET", pathMetadata, "Where to get an access token for this server (RFC 9728)", (*API).metadata).named("getResourceMetadata").
			open().sends(anyone).refuses(CodeNotFound),
		endpoint("GET", pathMetadataMCP, "The same, where MCP clients look for it", (*API).metadata).named("getMCPResourceMetadata").
			open().sends(anyone).refuses(CodeNotFound),
	)
}

func runRoutes() []Route {
	wait := duration("wait", "how long to wait for the end, such as `30s`; more than 9m is 9m. The wait ends when a run waits for its user, see its `questions`")
	tail := number("tail", "characters of the latest output to show, cleaned for a model", 0, background.MaxChars, 0)
	ids := formed("id", "a run to look at, in place of a list", runForm, "expected ids: bg_ and 26 characters")
	ids.Many = background.MaxIDs
	key := text(KeyHeader, "the same key, tool and arguments give the same run")
	key.MaxLength = maxKey
	place := text("Location", "the path of the run")
	attempt := Param{Name: attemptHeader, Description: "the attempt of the run whose output this is: another one has a log of its own", Type: "integer"}
	part := text("Content-Range", "the bytes that these are, and how many there are")
	return []Route{
		endpoint("POST", "/v1/runs", "Start a tool as a background run", (*API).spawn).named("spawnRun").created().begins().
			doc("The run is stored before the answer leaves. With `Idempotency-Key` a request that was cut off can be repeated.").
			headers(key).sends(place).also(http.StatusOK, "The run that an earlier request with this `Idempotency-Key` has started.").
			refuses(CodeNotFound, CodeDenied, CodeConflict, CodeUnsupported, CodeLimit),
		endpoint("GET", "/v1/runs", "The runs of the session, newest first; or those named by id", (*API).runs).named("listRuns").
			doc("Either a page of the list (`limit`, `before`, `active`), or the runs named by `id` (with `wait`, `until`, `tail`). "+
				"Ids the session does not have are in `missing`; if it has none of them, the answer is 404.").
			query(limit(), formed("before", "only runs older than the one with this id: the next page. If it is not kept any more the answer is 404", runForm, "expected an id: bg_ and 26 characters"),
				yesNo("active", "leave out runs that have ended"), ids, wait,
				oneOf("until", "with `id` and `wait`: whether to wait for `any` of the runs or for `all`; any if absent", string(background.UntilAny), string(background.UntilAll)), tail).
			refuses(CodeNotFound, CodeLimit),
		endpoint("GET", "/v1/runs/{run}", "One run", (*API).getRun).named("getRun").
			query(wait, tail, formed("cursor", "with `tail`: only output after the `cursor` of an earlier answer", placeForm, "expected the cursor of an earlier answer")).
			refuses(CodeNotFound, CodeLimit),
		endpoint("POST", "/v1/runs/{run}/stop", "Stop a run; answers with its true state when it has ended, or after the grace", (*API).stop).named("stopRun").
			doc("It may be repeated. A result that came first is kept, and told.").refuses(CodeNotFound),
		endpoint("POST", "/v1/runs/{run}/answers", "Answer questions a run waits for; it goes on when all are answered", (*API).answer).named("answerRun").
			doc("All answers are taken or none. One that does not fit its question is refused, and the question stays open.").
			refuses(CodeNotFound, CodeConflict),
		stream("/v1/runs/{run}/output", "The raw output, by ranges of bytes; as events it is followed until the run ends",
			[]string{plainText, eventStream}, (*API).output).named("readOutput").
			doc("With `Accept: text/event-stream` the output is followed. The id of an event is where the log ends for a client that has it: "+
				"with it as `Last-Event-ID` a client goes on there. A stream without the event `end` was cut off.").
			headers(formed("Range", "one range of bytes of the whole log", rangeForm, ""), formed("Last-Event-ID", "of events: go on after the one with this id", placeForm, "")).
			sends(attempt).
			events(EventType{EventOutput, reflect.TypeFor[Output]()}, EventType{EventRun, reflect.TypeFor[Run]()}, EventType{EventEnd, reflect.TypeFor[Run]()}).
			also(http.StatusPartialContent, "The bytes of `Range` that are there: the piece begins after what was dropped, or ends before it.", part).
			refuses(CodeNotFound, CodeRange, CodeLimit),
		stream("/v1/runs/{run}/artifacts/{name}", "A file of an ended run: output.log or result.json",
			[]string{plainText, jsonMedia}, (*API).artifact).named("readArtifact").
			headers(formed("Range", "bytes of the file", rangeForm, "")).sends(attempt).
			also(http.StatusPartialContent, "The bytes of `Range`.", part).refuses(CodeNotFound, CodeRange),
	}
}

func scheduleRoutes() []Route {
	return []Route{
		endpoint("POST", "/v1/schedules", "Start a tool at times of a cron expression, or once", (*API).schedule).named("createSchedule").created().begins().
			doc("Exactly one of `cron_expression` and `scheduled_at` is to be set. With an `Idempotency-Key` it is refused.").sends(text("Location", "the path of the schedule")).
			refuses(CodeNotFound, CodeDenied, CodeUnsupported, CodeLimit),
		endpoint("GET", "/v1/schedules", "The schedules of the session, newest first", (*API).schedules).named("listSchedules").
			query(yesNo("enabled", "leave out those that will not fire again")),
		endpoint("GET", "/v1/schedules/{schedule}", "One schedule", (*API).getSchedule).named("getSchedule").refuses(CodeNotFound),
		endpoint("DELETE", "/v1/schedules/{schedule}", "Disable a schedule; a run it started goes on", (*API).unschedule).named("disableSchedule").refuses(CodeNotFound),
	}
}

// limit is the parameter of lists that have pages.
func limit() Param { return number("limit", "how many at most", 1, maxPage, defaultPage) }
