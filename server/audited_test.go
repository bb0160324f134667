package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/audit"
	"github.com/toolhost/toolhost/server/wire"
)

// eventsOf are the events of a log, the oldest first, in a line each.
func eventsOf(t *testing.T, dir string) (lines []string) {
	t.Helper()
	_, err := audit.Verify(dir, audit.Head{})
	require.NoError(t, err)
	found, err := audit.Read(dir, audit.Query{})
	require.NoError(t, err)
	for _, e := range slices.Backward(found) {
		line := strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Action, " ", e.Tool, " ", e.Outcome, " ", e.Code, " ", e.User, " ", e.Session, " ", e.By)), " ")
		lines = append(lines, line)
	}
	return lines
}

// TestAudit: what a service does is in its log, and its log continues after a restart.
func TestAudit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	s := open(t, Config{DataDir: t.TempDir(), AuditDir: dir}, "echo", "sleeper")
	s.call("ana/default", "echo", `{"n":1}`)
	s.call("ana/default", "echo", `{"n":"not a number"}`)
	_, _ = s.Call(t.Context(), Request{Session: "~/ieinsjpxdjcjdgpa67vhj76c7i", Tool: "nonsense"})
	run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "sleeper", By: "operator"})
	require.NoError(t, err)
	_, err = s.Session(alice).Stop(t.Context(), run.TaskID, "operator", wire.Stop{Force: true})
	require.NoError(t, err)
	s.settled(alice, run.TaskID)
	plan, err := s.Session(alice).Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "sleeper"}, Cron: "0 0 1 1 *"})
	require.NoError(t, err)
	_, err = s.Session(alice).Schedules().Disable(t.Context(), plan.ScheduleID)
	require.NoError(t, err)
	require.NoError(t, s.Session(alice).Remove(t.Context(), run.TaskID))
	require.NoError(t, s.Session(alice).End(t.Context()))
	_, err = s.Session(alice).Schedules().Remove(WithDryRun(t.Context()), plan.ScheduleID)
	require.NoError(t, err)
	require.NoError(t, s.Close(done()))

	lines := eventsOf(t, dir)
	for _, want := range []string{
		"opened", "call echo success ana ana/default", "call nonsense tool_error not_found ~/ieinsjpxdjcjdgpa67vhj76c7i",
		"spawned spawned sleeper alice operator", "stop sleeper canceled alice operator", "ended sleeper canceled alice operator",
		"schedule created sleeper alice", "schedule disabled sleeper alice", "admin run removed alice", "admin session ended alice", "closed",
	} {
		require.Contains(t, lines, want)
	}
	require.Equal(t, "opened", lines[0])
	require.Equal(t, "closed", lines[len(lines)-1])
	require.NotContains(t, strings.Join(lines, "\n"), "removed sleeper", "a dry run changes nothing")
	found, err := audit.Read(dir, audit.Query{Kinds: []audit.Kind{audit.Grant, audit.Call}})
	require.NoError(t, err)
	for _, e := range found {
		if e.Plugin != "" {
			require.Len(t, e.Digest, 64)
		}
		require.NotContains(t, fmt.Sprint(e), "not a number", "no arguments")
	}
	require.Equal(t, audit.Grant, found[len(found)-1].Kind)

	s = open(t, Config{AuditDir: dir}, "echo")
	require.NoError(t, s.Close(done()))
	require.Greater(t, len(eventsOf(t, dir)), len(lines))
}

// TestAuditHeld: the log says of each call that waits for approval what became of it.
func TestAuditHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	s := openAsking(t, Config{DataDir: t.TempDir(), AuditDir: dir}, "1.0.0")
	called := waits(t, s, "approved", "drop")
	for _, session := range []string{"spawned", "refused", "withdrawn"} {
		run, err := s.Session(session).Spawn(t.Context(), SpawnRequest{Tool: "drop", Args: json.RawMessage(`{"n":1}`), By: "api"})
		require.NoError(t, err)
		switch session {
		case "spawned":
			_, err = s.Approvals().Decide(t.Context(), run.TaskID, "operator", wire.Decide{Approve: true})
		case "refused":
			_, err = s.Approvals().Decide(t.Context(), run.TaskID, "operator", wire.Decide{Reason: "not today"})
		case "withdrawn":
			_, err = s.Session(session).Stop(t.Context(), run.TaskID, "api", wire.Stop{Reason: "no longer needed"})
		}
		require.NoError(t, err)
		s.settled(session, run.TaskID)
	}
	_, err := s.Approvals().Decide(t.Context(), called, "operator", wire.Decide{Approve: true, Keep: wire.KeepAlways})
	require.NoError(t, err)
	s.settled("approved", called)
	s.call("kept", "drop", `{"n":1}`)
	require.NoError(t, s.Close(done()))

	found, err := audit.Read(dir, audit.Query{})
	require.NoError(t, err)
	said := map[string][]string{}
	for _, e := range slices.Backward(found) {
		line := strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Action, " ", e.Outcome, " ", e.Code, " ", e.By, " ", e.Reason)), " ")
		said[e.Session] = append(said[e.Session], line)
	}
	require.ElementsMatch(t, []string{"asked", "call held", "approved always operator", "spawned parked", "ended succeeded"}, said["approved"])
	require.ElementsMatch(t, []string{"asked", "approved operator", "spawned spawned api", "ended succeeded api"}, said["spawned"])
	require.ElementsMatch(t, []string{"asked", "refused operator not today", "ended canceled api not approved: not today"}, said["refused"])
	require.ElementsMatch(t, []string{"asked", "stop canceled api no longer needed", "ended canceled api no longer needed"}, said["withdrawn"])
	require.Equal(t, []string{"approved kept", "call success"}, said["kept"])
}

// BenchmarkAudit reports the time of a call with the audit log as a ratio to that of one
// without, made in turn.
func BenchmarkAudit(b *testing.B) {
	without, with := open(b, Config{}, "echo"), open(b, Config{AuditDir: b.TempDir()}, "echo")
	timed := func(sum *time.Duration, s service) {
		began := time.Now()
		s.call(alice, "echo", `{"n":1}`)
		*sum += time.Since(began)
	}
	var plain, logged time.Duration
	for b.Loop() {
		timed(&plain, without)
		timed(&logged, with)
	}
	b.ReportMetric(float64(logged)/float64(plain), "ratio")
	b.ReportMetric(float64((logged-plain).Nanoseconds())/float64(b.N), "ns/line")
}
