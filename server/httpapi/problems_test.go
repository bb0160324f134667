package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background"
	enginememory "github.com/toolhost/toolhost/pkg/background/engine/memory"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// asks are requests that are taken, for each route: its path, and its body.
var asks = map[string][2]string{
	"getTool":            {"/v1/tools/echo"},
	"callTool":           {"/v1/calls", `{"tool":"echo"}`},
	"spawnRun":           {"/v1/runs", `{"tool":"echo"}`},
	"stopRun":            {"/v1/runs/{run}/stop", `{}`},
	"answerRun":          {"/v1/runs/{sleeper}/answers", `{"answers":{"name":{"action":"decline"}}}`},
	"acknowledgeNotices": {"/v1/notices/ack", `{"task_ids":["{run}"]}`},
	"createSchedule":     {"/v1/schedules", `{"tool":"echo","cron_expression":"0 0 * * *"}`},
	"sendMessage":        {"/v1/runs/{listener}/messages", `{"message":1}`},
	"putValue":           {"/v1/session/values/k", `{"value":1}`},
	"setSecret":          {"/v1/secrets/example", `{"value":"correct-horse-battery"}`},
	"decideApproval":     {"/v1/approvals/{run}", `{"approve":true}`},
}

// refusals are what a route is asked for to be answered with one of the codes
// that not all routes have: its path, its body, its headers.
var refusals = map[string][]string{
	"getTool not_found":         {"/v1/tools/none"},
	"getTool denied":            {"/v1/tools/denied"},
	"callTool not_found":        {"/v1/calls", `{"tool":"none"}`},
	"callTool denied":           {"/v1/calls", `{"tool":"dangerous"}`},
	"spawnRun not_found":        {"/v1/runs", `{"tool":"none"}`},
	"spawnRun denied":           {"/v1/runs", `{"tool":"dangerous"}`},
	"spawnRun conflict":         {"/v1/runs", `{"tool":"echo","args":{"n":1}}`, wire.KeyHeader, "monday"},
	"spawnRun unsupported":      {"/v1/runs", `{"tool":"plain"}`},
	"spawnRun limit":            {"/v1/runs", `{"tool":"sleeper"}`, wire.SessionHeader, "full"},
	"listRuns not_found":        {"/v1/runs?id={none}"},
	"listRuns limit":            {"/v1/runs?id={run}&wait=1s"},
	"getRun not_found":          {"/v1/runs/{none}"},
	"getRun limit":              {"/v1/runs/{run}?wait=1s"},
	"removeRun not_found":       {"/v1/runs/{none}"},
	"removeRun conflict":        {"/v1/runs/{sleeper}"},
	"stopRun not_found":         {"/v1/runs/{none}/stop", `{}`},
	"answerRun not_found":       {"/v1/runs/{none}/answers", `{"answers":{"name":{"action":"decline"}}}`},
	"answerRun conflict":        {"/v1/runs/{sleeper}/answers", `{"answers":{"name":{"action":"decline"}}}`},
	"readOutput not_found":      {"/v1/runs/{none}/output"},
	"readOutput range":          {"/v1/runs/{run}/output", "", "Range", "bytes=1000-"},
	"readOutput limit":          {"/v1/runs/{run}/output", "", "Accept", "text/event-stream"},
	"readArtifact not_found":    {"/v1/runs/{run}/artifacts/none"},
	"readArtifact range":        {"/v1/runs/{run}/artifacts/output.log", "", "Range", "bytes=1000-"},
	"callTool conflict":         {"/v1/calls", `{"tool":"echo","args":{"n":1}}`, wire.KeyHeader, "monday"},
	"createSchedule not_found":  {"/v1/schedules", `{"tool":"none","cron_expression":"0 0 * * *"}`},
	"createSchedule denied":     {"/v1/schedules", `{"tool":"dangerous","cron_expression":"0 0 * * *"}`},
	"createSchedule limit":      {"/v1/schedules", `{"tool":"echo","cron_expression":"0 0 * * *"}`, wire.SessionHeader, "full"},
	"getSchedule not_found":     {"/v1/schedules/sc_aaaaaaaaaaaaaaaaaaaaaaaaaa"},
	"disableSchedule not_found": {"/v1/schedules/sc_aaaaaaaaaaaaaaaaaaaaaaaaaa/disable"},
	"watchEvents limit":         {"/v1/events"},
	"rerun not_found":           {"/v1/runs/{none}/rerun"},
	"rerun denied":              {"/v1/runs/{allowed}/rerun"},
	"rerun unsupported":         {"/v1/runs/{secret}/rerun"},
	"sendMessage not_found":     {"/v1/runs/{none}/messages", `{"message":1}`},
	"sendMessage conflict":      {"/v1/runs/{heard}/messages", `{"message":1}`},
	"sendMessage unsupported":   {"/v1/runs/{sleeper}/messages", `{"message":1}`},
	"listMessages not_found":    {"/v1/runs/{none}/messages"},
	"listRunCalls not_found":    {"/v1/runs/{none}/calls"},
	"fireSchedule conflict":     {"/v1/schedules/{fired}/fire"},
	"listApprovals not_found":   {"/v1/approvals?after={none}"},
	"getApproval not_found":     {"/v1/approvals/{none}"},
	"getApproval conflict":      {"/v1/approvals/{run}"},
	"decideApproval not_found":  {"/v1/approvals/{none}", `{"approve":true}`, wire.ApprovalHeader, "may approve as well"},
	"decideApproval conflict":   {"/v1/approvals/{run}", `{"approve":true}`, wire.ApprovalHeader, "may approve as well"},
	"setSecret not_found":       {"/v1/secrets/none", `{"value":"correct-horse-battery"}`},
	"backup conflict":           {"/v1/backup"},
	"getStored not_found":       {"/v1/kv/keeper/none"},
	"getValue not_found":        {"/v1/session/values/none"},
	"putValue conflict":         {"/v1/session/values/k", `{"value":1,"version":7}`},
	"deleteValue conflict":      {"/v1/session/values/{stored}?version=7"},

	"listRuns closing": {"/v1/runs?id={sleeper}&wait=1m"}, // while they wait
	"getRun closing":   {"/v1/runs/{sleeper}?wait=1m"},

	"callTool unavailable":       {"/v1/calls", `{"tool":"sleeper"}`, wire.KeyHeader, "tuesday"},
	"decideApproval unavailable": {"/v1/approvals/{run}", `{"approve":true}`, wire.ApprovalHeader, "may approve as well"},
	"revokeApproval unavailable": {"/v1/kept_approvals/echo", "", wire.ApprovalHeader, "may approve as well"},

	"createSchedule unsupported": {"/v1/schedules", `{"tool":"plain","cron_expression":"0 0 * * *"}`},
}

// Each code that a route is documented with is one it answers with.
func TestDocumentedProblems(t *testing.T) {
	for _, r := range httpapi.Routes() {
		t.Run(r.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newScene(t)
				for _, code := range r.Codes {
					switch code {
					case wire.CodeNotFound:
						if r.Open { // the metadata, where there is no issuer
							p, _ := serve(t, httpapi.Config{}, "echo").problem(r.Method, r.Path, "", 0)
							require.Equal(t, code, p.Code)
							continue
						}
						s.provoke(r, code)
					case wire.CodeInternal: // see TestPanics
					case wire.CodeLimit, wire.CodeClosing: // below, for nothing is as before after them
					default:
						s.provoke(r, code)
					}
				}
			})
			for _, code := range []wire.Code{wire.CodeLimit, wire.CodeClosing} {
				if slices.Contains(r.Codes, code) {
					bubble(t, func(t *testing.T) { newScene(t).provoke(r, code) })
				}
			}
		})
	}
}

// scene is a server that needs a token, its own or one of an issuer, with a run that has ended and one that
// is still active.
type scene struct {
	*fixture
	issuer *issuer
	away   *awayEngine
	names  *strings.Replacer // what stands for ids and names in the tables above
	made   map[string]string // by others
}

func newScene(t *testing.T) *scene {
	i, away := startIssuer(t), &awayEngine{Engine: enginememory.New()}
	f := serveOn(t, away, httpapi.Config{Token: "s3cret", Approvals: approvals("may approve as well"), OAuth: i.trust("tools")}, "echo", "plain", "dangerous", "denied", "sleeper", "listener", "vault", "waits")
	token := []string{"Authorization", "Bearer s3cret"}
	run := f.ask("POST", "/v1/runs", `{"tool":"echo"}`, append(token, wire.KeyHeader, "monday")...)["task_id"].(string)
	f.ask("GET", "/v1/runs/"+run+"?wait=1m", "", token...)
	sleeper := f.ask("POST", "/v1/runs", `{"tool":"sleeper"}`, token...)["task_id"].(string)
	nobody := strings.Repeat("a", 26)
	return &scene{f, i, away, strings.NewReplacer("{run}", run, "{sleeper}", sleeper, "{none}", "bg_"+nobody,
		"{tool}", "echo", "{plugin}", "keeper", "{name}", "output.log", "{schedule}", "sc_"+nobody, "{key}", "k"), map[string]string{}}
}

// others replaces what few refusals name: a run of a tool that is denied now, one with a secret,
// one that has read messages and ended, one that still reads them, a schedule whose run
// is active, and a value.
func (s *scene) others(path string) string {
	before, rest, found := strings.Cut(path, "{")
	if !found {
		return path
	}
	what, after, _ := strings.Cut(rest, "}")
	if s.made[what] == "" {
		s.made[what] = s.make(what)
	}
	return before + s.made[what] + after
}

func (s *scene) make(what string) (name string) {
	session := s.service.Session(wire.DefaultSession)
	spawn := func(tool, args string) string {
		run, err := session.Spawn(s.t.Context(), server.SpawnRequest{Tool: tool, Args: json.RawMessage(args)})
		require.NoError(s.t, err)
		return run.TaskID
	}

	var err error
	switch what {
	case "allowed": // before the operator denied its tool
		denies := s.policy(server.ApprovalPolicy{Tools: map[string]server.Decision{"*": server.DecideAllow}})
		name = spawn("dangerous", "")
		s.policy(denies)
	case "secret":
		name = spawn("vault", `{"key":"hunter2"}`)
	case "listener":
		name = spawn("listener", "")
	case "heard":
		name = spawn("listener", "")
		_, err = session.Stop(s.t.Context(), name, "", wire.Stop{Force: true})
		time.Sleep(time.Minute)
	case "fired":
		head := []string{"Authorization", "Bearer s3cret", wire.SessionHeader, wire.DefaultSession}
		name = s.ask("POST", "/v1/schedules", `{"tool":"sleeper","cron_expression":"0 0 1 1 *","overlap":"skip"}`, head...)["schedule_id"].(string)
		_, err = session.Schedules().Fire(s.t.Context(), name, "")
		time.Sleep(time.Minute) // two at the same moment are one
	case "stored":
		name = "stored"
		_, err = session.Values().Set(s.t.Context(), name, json.RawMessage("1"), 0)
	}
	require.NoError(s.t, err)
	return name
}

// policy changes the policy, and returns the former one.
func (s *scene) policy(to server.ApprovalPolicy) (from server.ApprovalPolicy) {
	_, err := s.service.Reconfigure(s.t.Context(), func(cfg *server.Config) { from, cfg.Approvals = cfg.Approvals, to })
	require.NoError(s.t, err)
	return from
}

// provoke asks a route for what is answered with a code.
func (s *scene) provoke(r httpapi.Route, code wire.Code) {
	path, body, headers := r.Path, "", []string{"Authorization", "Bearer s3cret"}
	if ask, ok := asks[r.Name]; ok {
		path, body = ask[0], ask[1]
	}
	if refusal, ok := refusals[r.Name+" "+string(code)]; ok {
		path, body = refusal[0], ""
		if len(refusal) > 1 {
			body, headers = refusal[1], append(headers, refusal[2:]...)
		}
	}
	path, body = s.others(s.names.Replace(path)), s.names.Replace(body)
	length := len(body) // what the body is said to have
	switch code {
	case wire.CodeInvalid:
		headers = append(headers, wire.SessionHeader, "a b")
	case wire.CodeForbidden:
		headers = append(headers, "Origin", "https://attacker.example")
	case wire.CodeUnauthorized:
		headers = nil
	case wire.CodeScope:
		headers = []string{"Authorization", "Bearer " + sign(s.t, jose.RS256, rsaKey(), map[string]any{"kid": "rsa"}, claimsOf("ada", map[string]any{"scope": "other"}))}
	case wire.CodeIssuer:
		headers = s.unknownKey(http.NotFound)
	case wire.CodeTooLarge:
		length = 9 << 20
		body = strings.Repeat(" ", length)
	case wire.CodeMediaType:
		headers = append(headers, "Content-Encoding", "br")
	case wire.CodeTimeout:
		length += 1000
	case wire.CodeLimit:
		s.fill(r.Name)
	case wire.CodeUnavailable:
		s.away.away.Store(true)
		defer s.away.away.Store(false)
	case wire.CodeClosing:
		s.Drain()
		if _, waits := refusals[r.Name+" closing"]; !r.Begins && !r.Open && !waits { // it is caught in the middle of a login
			headers = s.unknownKey(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}
		go func() {
			time.Sleep(time.Second)
			_ = s.Shutdown(context.Background())
		}()
	}
	p, h := s.problem(r.Method, path, body, length, headers...)
	require.Equal(s.t, code, p.Code, "%s: %+v", r.Name, p)
	require.NotContains(s.t, p.Detail, "10.0.0.7")
	passes := code == wire.CodeClosing || code == wire.CodeUnavailable || code == wire.CodeIssuer || code == wire.CodeLimit && r.Name != "createSchedule"
	require.Equal(s.t, passes, h.Get("Retry-After") != "", "what passes by itself says when to come again: %v", h)
}

// unknownKey is the head of a request of a user whose token is signed by a key
// that the issuer has to be asked for, which then answers so.
func (s *scene) unknownKey(fault http.HandlerFunc) []string {
	s.issuer.breaks(fault)
	time.Sleep(time.Minute) // until it would be asked again
	return []string{"Authorization", "Bearer " + sign(s.t, jose.RS256, rsaKey(), map[string]any{"kid": "new"}, claimsOf("ada", nil))}
}

// A route that says it needs no token does need none.
func TestOpenRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{Token: "s3cret", OAuth: startIssuer(t).trust()}, "echo")
		for _, r := range httpapi.Routes() {
			if r.Open {
				f.ask(r.Method, r.Path, "")
			}
		}
	})
}

// fill takes all there is room for.
func (f *fixture) fill(operation string) {
	headers := []string{"Authorization", "Bearer s3cret", wire.SessionHeader, "full"}
	switch operation {
	case "spawnRun":
		for range background.DefaultPerSession {
			f.ask("POST", "/v1/runs", `{"tool":"sleeper"}`, headers...)
		}
	case "createSchedule":
		for range background.DefaultSchedules {
			f.ask("POST", "/v1/schedules", `{"tool":"echo","cron_expression":"0 0 * * *"}`, headers...)
		}
	default:
		f.limited(16) // 15 of them for requests, 3 of a session
		for i := range 15 {
			f.begin(fmt.Sprintf("POST /v1/calls HTTP/1.1\nHost: localhost\nAuthorization: Bearer s3cret\nContent-Type: application/json\nContent-Length: 9\n%s: s%d\n\n{", wire.SessionHeader, i/3))
		}
		synctest.Wait()
	}
}

// problem sends a request, of which the server may not take everything, or
// which is shorter than it says, and returns the problem it is answered with.
func (f *fixture) problem(method, path, body string, length int, headers ...string) (p wire.Problem, h http.Header) {
	f.t.Helper()
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	if length > 0 {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", length)
	}
	if !slices.Contains(headers, "Content-Type") && body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	if !slices.Contains(headers, wire.SessionHeader) {
		headers = append(headers, wire.SessionHeader, wire.DefaultSession)
	}
	for h := range slices.Chunk(headers, 2) {
		fmt.Fprintf(&head, "%s: %s\r\n", h[0], h[1])
	}
	conn := f.dial("tcp")
	go func() { _, _ = io.WriteString(conn, head.String()+"\r\n"+body) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(f.t, err)
	require.NoError(f.t, json.NewDecoder(resp.Body).Decode(&p), "%s", resp.Status)
	require.Equal(f.t, "application/problem+json", resp.Header.Get("Content-Type"))
	_ = conn.Close()
	synctest.Wait()
	return p, resp.Header
}

// A name in a path that nothing can have is refused, whatever the endpoint.
func TestInvalidNamesInPaths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := serve(t, httpapi.Config{}, "echo")
		for _, c := range []struct{ method, path, field string }{
			{"GET", "/v1/runs/bg_1", "run"}, {"GET", "/v1/runs/x%2Fy", "run"}, {"GET", "/v1/runs/sc_aaaaaaaaaaaaaaaaaaaaaaaaaa", "run"},
			{"GET", "/v1/schedules/sc_1", "schedule"}, {"GET", "/v1/kv/Keeper", "plugin"}, {"GET", "/v1/kv/a%2Fb/k", "plugin"},
			{"GET", "/v1/kv/a234567890123456789012345678901234", "plugin"}, {"DELETE", "/v1/secrets/a%20b", "secret"},
			{"DELETE", "/v1/secrets/" + strings.Repeat("x", 129), "secret"},
		} {
			p, _ := f.problem(c.method, c.path, "", 0)
			require.Equal(t, wire.CodeInvalid, p.Code, c.path)
			require.Equal(t, c.field, p.Field, c.path)
		}
	})
}
