package server

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/internal/reason"
)

// maxAnswer bounds an answer to an agent, in characters.
const maxAnswer = 50_000

func TestCheckWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "sleeper")
		id := s.spawn(alice, "sleeper", "{}")
		synctest.Wait()
		time.Sleep(7 * time.Second)
		require.Equal(t, object{
			"task_id": id, "tool": "sleeper", "title": "Background sleeper", "status": "running", "done": false,
			"elapsed_seconds": 7.0, "deadline_in_seconds": 293.0,
			"progress": map[string]any{"done": 1.0, "total": 2.0, "message": "half way"},
			"output":   map[string]any{"text": "working\n", "cursor": "1:8", "last_output_at": "2000-01-01T00:00:00Z"},
		}, s.check(alice, id, `,"wait_seconds":0`))
	})
}

// A wait ends with the run, or after as long as it may take.
func TestCheckWaits(t *testing.T) {
	for _, test := range []struct {
		name, wait string
		timeout    string // of the run, in seconds
		waited     any    // nil: absent
		status     string
		next       any
	}{
		{"a minute if nothing is said", ``, "3600", 60.0, "running", nil},
		{"not at all", `,"wait_seconds":0`, "3600", nil, "running", nil},
		{"never less", `,"wait_seconds":-5`, "3600", nil, "running", nil},
		{"as long as said", `,"wait_seconds":540.0`, "3600", 540.0, "running", nil},
		{"never longer", `,"wait_seconds":9999`, "3600", 540.0, "running", "still running after 540 seconds, the longest wait here: check again to wait longer"},
		{"for ever is longer too", `,"wait_seconds":1e300`, "3600", 540.0, "running", "still running after 540 seconds, the longest wait here: check again to wait longer"},
		{"until the end at most", `,"wait_seconds":9999`, "90", 90.0, "failed", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, Config{}, "sleeper")
				id := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":`+test.timeout+`}`)["task_id"].(string)
				synctest.Wait()
				answer := s.check(alice, id, test.wait)
				require.Equal(t, test.waited, answer["waited_seconds"])
				require.Equal(t, test.status, answer["status"])
				require.Equal(t, test.next, answer["next"])
			})
		})
	}
}

func TestCheckSeveral(t *testing.T) {
	for _, test := range []struct {
		until  string
		waited float64
		done   []any
	}{
		{``, 10, []any{true, false}},
		{`,"until":"any"`, 10, []any{true, false}},
		{`,"until":"all"`, 20, []any{true, true}},
	} {
		t.Run("until"+test.until, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, Config{}, "sleeper")
				short := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":10}`)["task_id"].(string)
				long := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"timeout_seconds":20}`)["task_id"].(string)
				answer := s.agent(alice, CheckBackground, `{"task_ids":["`+short+`","`+long+`","`+short+`"]`+test.until+`}`)
				tasks := answer["tasks"].([]any)
				require.Len(t, tasks, 2, "an id that comes twice counts once")
				for i, id := range []string{short, long} {
					task := tasks[i].(map[string]any)
					require.Equal(t, id, task["task_id"])
					require.Equal(t, test.done[i], task["done"])
					require.Equal(t, test.waited, task["waited_seconds"])
				}
			})
		})
	}
}

func TestCheckBadRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo")
		id := s.spawn(alice, "echo", "{}")
		other := s.spawn(alice, "echo", "{}")
		synctest.Wait()
		require.Equal(t, "task_ids: give either task_id or task_ids",
			s.refused(alice, CheckBackground, `{"task_id":"`+id+`","task_ids":["`+other+`"]}`))
		require.Equal(t, "cursor: only for a single task_id",
			s.refused(alice, CheckBackground, `{"task_ids":["`+id+`","`+other+`"],"cursor":"1:0"}`))
		require.Contains(t, s.refused(alice, CheckBackground, `{"task_id":"`+id+`","cursor":"first"}`), `cursor: invalid cursor: use that of an earlier answer`)
		require.Equal(t, "wait_seconds: the number is out of range", s.refused(alice, CheckBackground, `{"task_id":"`+id+`","wait_seconds":1e350}`))
		list := s.agent(alice, CheckBackground, `{"task_id":"`+id+`","task_ids":["`+other+`"],"list":true}`)
		require.EqualValues(t, 2, list["finished"], "list wins over all")
	})
}

// With the cursor of the answer before, no output comes twice and none is lost.
func TestCheckCursor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "chatty")
		id := s.spawn(alice, "chatty", "{}")
		synctest.Wait()
		cursor := ""
		next := func(more string) string {
			if cursor != "" {
				more += `,"cursor":"` + cursor + `"`
			}
			output := s.check(alice, id, more)["output"].(map[string]any)
			cursor = output["cursor"].(string)
			return output["text"].(string)
		}
		require.Equal(t, "one\n", next(`,"wait_seconds":0`))
		require.Equal(t, "", next(`,"wait_seconds":5`), "no new output")
		require.Equal(t, "two\n", next(`,"wait_seconds":8`))
		require.Equal(t, "thr", next(`,"max_chars":3`))
		require.Equal(t, "ee\n", next(``))
		require.Equal(t, "", next(``))
		cursor = ""
		require.Equal(t, "one\ntwo\nthree\n", next(``), "without a cursor, what was shown is shown again")
		require.NotContains(t, s.check(alice, id, `,"max_chars":0`), "output")
		require.NotContains(t, s.check(alice, id, `,"max_chars":-1`), "output")
		require.Contains(t, s.check(alice, id, `,"max_chars":1e6`), "output")
	})
}

// A run that wrote nothing says so in the same way while it runs and
// afterwards; done tells the two apart.
func TestCheckWithoutOutput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "stubborn")
		id := s.spawn(alice, "stubborn", "{}")
		synctest.Wait()
		nothing := map[string]any{"text": "", "cursor": "1:0"}
		report := s.check(alice, id, `,"wait_seconds":0`)
		require.Equal(t, false, report["done"])
		require.Equal(t, nothing, report["output"])
		s.stop(alice, id, "")
		report = s.check(alice, id, "")
		require.Equal(t, true, report["done"])
		require.NotContains(t, report, "output", "it has a result")
		require.Equal(t, nothing, s.check(alice, id, `,"max_chars":10`)["output"])
	})
}

// An answer is bounded: a result too large for it is replaced by its size, its
// beginning and where it is.
func TestCheckLargeResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{PerSession: 20}}, "large", "huge", "medium")
		medium, large, huge := s.spawn(alice, "medium", "{}"), s.spawn(alice, "large", "{}"), s.spawn(alice, "huge", "{}")

		answer := s.check(alice, medium, "")
		require.Len(t, answer["result"], 7000, "up to 8 KiB it is whole")
		require.NotContains(t, answer, "result_path")

		answer = s.check(alice, large, "")
		require.NotContains(t, answer, "result")
		require.EqualValues(t, 10_002, answer["result_bytes"])
		require.Equal(t, `"`+strings.Repeat("ü", 511), answer["result_preview"], "cut between characters")
		require.NotContains(t, answer, "result_path", "there is no data folder")
		require.Equal(t, "check this task alone with max_chars 16384 for the whole result", answer["next"])
		require.Len(t, s.check(alice, large, `,"max_chars":16384`)["result"], 10_000)

		tasks := s.agent(alice, CheckBackground, `{"task_ids":["`+medium+`","`+huge+`"],"until":"all"}`)["tasks"].([]any)
		first, second := tasks[0].(map[string]any), tasks[1].(map[string]any)
		require.Len(t, first["result"], 7000)
		require.EqualValues(t, 60_002, second["result_bytes"])

		ids := []string{medium}
		for range 9 {
			ids = append(ids, s.spawn(alice, "medium", "{}"))
		}
		first = s.agent(alice, CheckBackground, `{"task_ids":["`+strings.Join(ids, `","`)+`"],"until":"all"}`)["tasks"].([]any)[0].(map[string]any)
		require.EqualValues(t, 7002, first["result_bytes"], "among many there is less room")
		require.Equal(t, "check this task alone for the whole result", first["next"])

		stopped := s.agent(alice, StopBackground, `{"task_id":"`+huge+`"}`)
		require.NotContains(t, stopped, "result")
		require.EqualValues(t, 60_002, stopped["result_bytes"])
	})
}

// Text that takes six times its room in JSON fits too, and what did not fit
// comes with the next check.
func TestCheckFitsWhateverIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "separators")
		id := s.spawn(alice, "separators", "{}")
		var all strings.Builder
		cursor, checks := "1:0", 0
		for ; all.Len() < 3*16_000; checks++ {
			r := s.call(alice, CheckBackground, `{"task_id":"`+id+`","max_chars":16384,"cursor":"`+cursor+`"}`)
			require.LessOrEqual(t, utf8.RuneCount(r.Value), maxAnswer)
			var report struct{ Output struct{ Text, Cursor string } }
			require.NoError(t, json.Unmarshal(r.Value, &report))
			require.NotEmpty(t, report.Output.Text)
			require.NotEqual(t, cursor, report.Output.Cursor)
			all.WriteString(report.Output.Text)
			cursor = report.Output.Cursor
		}
		require.Equal(t, strings.Repeat("\u2028", 16_000), all.String())
		require.Less(t, checks, 10, "there is room for more")
	})
}

// Twenty runs fit one answer, however much each has to say.
func TestCheckManyFitsOneAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Runs: RunsConfig{PerSession: 20}}, "medium", "talkative")
		var ids []string
		for range 10 {
			ids = append(ids, s.spawn(alice, "medium", "{}"), s.spawn(alice, "talkative", "{}"))
		}
		r := s.call(alice, CheckBackground, `{"task_ids":["`+strings.Join(ids, `","`)+`"],"until":"all","max_chars":16384}`)
		require.Less(t, len(r.Value), maxAnswer)
		require.Greater(t, len(r.Value), maxAnswer*3/4, "there is room for more")
		for _, id := range ids {
			require.Contains(t, string(r.Value), id)
		}
		report := s.check(alice, ids[0], `,"max_chars":16384`)
		require.Len(t, report["result"], 7000)
		require.Len(t, report["output"].(map[string]any)["text"], 9000)
	})
}

// Reading changes nothing: a result is there as long as its record is.
func TestCheckAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "picture")
		id := s.spawn(alice, "echo", `{"n":1}`)
		synctest.Wait()
		first := s.check(alice, id, "")
		time.Sleep(time.Hour)
		for range 3 {
			require.Equal(t, first, s.check(alice, id, ""))
			s.agent(alice, CheckBackground, `{}`)
		}
		r := s.call(alice, CheckBackground, `{"task_id":"`+s.spawn(alice, "picture", "{}")+`"}`)
		require.Contains(t, string(r.Value), `"result":{"a":"<b>"},"content":[{"type":"text","text":"hello"}]`, "content is kept, and nothing is escaped without need")
	})
}

func TestCheckList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "sleeper")
		require.Equal(t, `{"active":0,"finished":0,"tasks":[]}`, string(s.call(alice, CheckBackground, `{}`).Value))

		ended := s.spawn(alice, "echo", "{}")
		time.Sleep(time.Second)
		older := s.agent(alice, SpawnBackground, `{"tool":"sleeper","args":{},"title":"`+strings.Repeat("t", 100)+`"}`)["task_id"]
		time.Sleep(time.Second)
		newer := s.spawn(alice, "sleeper", "{}")
		s.spawn(bob, "echo", "{}")
		time.Sleep(time.Second)
		row := func(id any, tool, title, status string, elapsed float64) any {
			return map[string]any{"task_id": id, "tool": tool, "title": title, "status": status, "elapsed_seconds": elapsed}
		}
		running := []any{
			row(newer, "sleeper", "Background sleeper", "running", 1),
			row(older, "sleeper", strings.Repeat("t", 39)+"…", "running", 2),
		}
		all := append(running[:2:2], row(ended, "echo", "Echo", "succeeded", 0))
		require.Equal(t, object{"active": 2.0, "finished": 1.0, "tasks": all}, s.agent(alice, CheckBackground, `{}`))
		require.Equal(t, object{"active": 2.0, "finished": 1.0, "tasks": all}, s.agent(alice, CheckBackground, `{"list":true,"task_id":"bg_x"}`))
		require.Equal(t, object{"active": 2.0, "finished": 1.0, "tasks": running}, s.agent(alice, CheckBackground, `{"include_finished":false}`))

		for range 20 {
			s.spawn(alice, "echo", "{}")
			synctest.Wait()
		}
		long := s.agent(alice, CheckBackground, `{}`)
		require.Len(t, long["tasks"], 20)
		require.Equal(t, []any{21.0, 3.0}, []any{long["finished"], long["more"]})
	})
}

// A run of another session, one that never was, and one whose record is gone
// are answered byte for byte alike, by all tools that take an id.
func TestUnknownRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{}, "echo", "sleeper")
		foreign := s.spawn(bob, "sleeper", "{}")
		const never = "bg_aaaaaaaaaaaaaaaaaaaaaaaaaa"
		gone := s.spawn(alice, "echo", "{}")
		s.check(alice, gone, "")
		time.Sleep(25 * time.Hour) // longer than records are kept
		foreign = s.spawn(bob, "sleeper", "{}")
		synctest.Wait()

		answers := func(tail string) {
			t.Helper()
			for _, tool := range []string{CheckBackground, StopBackground} {
				for _, id := range []string{foreign, never, gone, "no id at all"} {
					require.Equal(t, "no such background task in this session: "+id+tail, s.refused(alice, tool, `{"task_id":"`+id+`"}`))
				}
			}
		}
		answers("; none is active")
		own := s.spawn(alice, "sleeper", "{}")
		synctest.Wait()
		answers("; active: " + own)

		answer := s.agent(alice, CheckBackground, `{"task_ids":["`+foreign+`","`+own+`","`+never+`"],"wait_seconds":0}`)
		require.Len(t, answer["tasks"], 1)
		require.Equal(t, "no such background task in this session: "+foreign+", "+never+"; active: "+own, answer["error"])
		require.Equal(t, "running", s.check(bob, foreign, `,"wait_seconds":0`)["status"], "its owner sees it, and it runs")
	})
}

// An id is what a model sends; however long it is, it does not come back whole.
func TestUnknownRunIsCut(t *testing.T) {
	s := open(t, Config{}, "echo")
	text := s.refused(alice, CheckBackground, `{"task_id":"`+strings.Repeat("ü", 1<<20)+`"}`)
	require.LessOrEqual(t, len(text), reason.MaxText+len("…"))
	require.True(t, strings.HasPrefix(text, "no such background task in this session: üü"))
}
