package webui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
)

// The last lines of runs are watched, and all lines searched, in one run or in many.
func TestLogs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo", "chatty", "huge", "hostile")
		golden(t, "empty-logs", f.get("/ui/logs"))
		echo := f.spawnRequest("ana", server.SpawnRequest{Tool: "echo", Title: "</h2>Say it"})
		time.Sleep(time.Second)
		chatty := f.spawn("bo", "chatty")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		golden(t, "logs", f.get("/ui/logs"))
		require.Contains(t, f.get("/ui/logs"), `id="live"`, "it is watched")

		page := f.get("/ui/logs?text=ECHO")
		golden(t, "logs-search", page)
		require.NotContains(t, page, `id="live"`)
		require.NotContains(t, page, chatty)
		for query, want := range map[string]int{"text=o": 2, "text=o&session=bo": 1, "text=o&plugin=echo": 1, "text=o&tool=none": 0, "text=nowhere": 0, "tool=chatty": 1, "text=o&run=" + echo: 1, "text=o&before=" + chatty: 1} {
			require.Equal(t, want, strings.Count(f.get("/ui/logs?"+query), `<article id="log-`), query)
		}
		require.Contains(t, f.get("/ui/runs/"+echo), `<input type="hidden" name="run" value="`+echo+`">`)

		f.spawn("eve", "hostile")
		page = f.get("/ui/logs?text=%3Cscript%3E")
		require.Contains(t, page, "<mark>&lt;script&gt;</mark>alert(1)&lt;/script&gt;")
		require.Contains(t, f.get("/ui/logs?text=gpj"), "⟨U+202E⟩<mark>gpj</mark>.exe⟨U+202C⟩")
		require.NotContains(t, f.get("/ui/logs?text=%1b%5b31m"), "<mark>", "terminal controls are left out before")

		for _, bad := range []string{"text=" + strings.Repeat("x", 400), "run=x", "before=x"} {
			require.Equal(t, http.StatusBadRequest, f.do("GET", "/ui/logs?"+bad, "").Code, bad)
		}
		require.Equal(t, http.StatusNotFound, f.do("GET", "/ui/logs?text=x&run=bg_"+strings.Repeat("a", 26), "").Code)
	})
}

// A search has bounds, and can be continued where it ended.
func TestLogSearchIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "huge")
		var ids []string
		for range maxFound/maxFoundRun + 3 {
			ids = append(ids, f.spawn("default", "huge"))
			time.Sleep(time.Second)
		}
		page := f.get("/ui/logs?text=9abc")
		require.Equal(t, maxFound, strings.Count(page, "<mark>"))
		require.Contains(t, page, "300 lines found")
		require.Contains(t, page, "older runs were not searched")
		require.NotContains(t, page, ids[2])
		_, next, _ := strings.Cut(page, `<a href="/ui/logs?before=`)
		next, _, _ = strings.Cut(next, `"`)
		page = f.get("/ui/logs?before=" + strings.ReplaceAll(next, "&amp;", "&"))
		for _, id := range ids[:3] {
			require.Contains(t, page, `<article id="log-`+id)
		}
		require.Equal(t, 3*maxFoundRun, strings.Count(page, "<mark>"))
		require.Contains(t, page, `<a href="/ui/logs?text=9abc">Newest</a>`)
		require.Contains(t, page, `<a href="/ui/logs?run=`+ids[0]+`&amp;text=9abc">Search all of this run</a>`)

		page = f.get("/ui/logs?text=9abc&run=" + ids[0])
		require.Equal(t, maxFound, strings.Count(page, "<mark>"))
		require.Contains(t, page, "the rest of the run was not searched")
		require.Less(t, len(f.get("/ui/logs")), 64<<10)
	})
}

func TestFinder(t *testing.T) {
	for name, test := range map[string]struct{ text, in, want string }{
		"in any case":          {"ERR", "an error\nfine\nErr: x\n", "an [err]or|[Err]: x"},
		"not an expression":    {"a.b(", "a.b(c)\naxb(\n", "[a.b(]c)"},
		"several in a line":    {"a", "banana", "b[a]n[a]n[a]"},
		"beyond ASCII":         {"ä", "ÄPFEL\n", "[Ä]PFEL"},
		"a long line":          {"x", strings.Repeat("ab", 200) + "x" + strings.Repeat("c", 1000), "…" + strings.Repeat("ab", 50) + "[x]" + strings.Repeat("c", 296) + "…"},
		"not UTF-8":            {"b\xff", "a\nb\xff\n", "[b\xff]"},
		"nothing":              {"x", "", ""},
		"an empty line before": {"x", "\n\nx\n", "[x]"},
	} {
		var lines []string
		for _, l := range newFinder(test.text).in(test.in, 10) {
			var line strings.Builder
			for _, p := range l.Parts {
				if p.Found {
					p.Text = fmt.Sprintf("[%s]", p.Text)
				}
				line.WriteString(p.Text)
			}
			lines = append(lines, line.String())
		}
		require.Equal(t, test.want, strings.Join(lines, "|"), name)
	}
	require.Len(t, newFinder("x").in(strings.Repeat("x\n", 100), 7), 7)
}
