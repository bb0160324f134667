package webui

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// submit sends the form of a tool, and returns the resulting page.
func (f *fixture) submit(tool string, status int, form url.Values) string {
	f.t.Helper()
	w := f.post("/ui/tools/"+tool, form.Encode())
	require.Equal(f.t, status, w.Code, w.Body)
	if status == http.StatusSeeOther {
		return w.Header().Get("Location")
	}
	inspect(f.t, w.Body.String())
	require.NotContains(f.t, w.Body.String(), `id="live"`, "its address has another page")
	return w.Body.String()
}

// The form of a tool follows its schema.
func TestForm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "form", "needy", "danger", "echo")
		golden(t, "form", f.get("/ui/tools/form"))
		golden(t, "tools", f.get("/ui/tools"))
		golden(t, "settings", f.get("/ui/settings"))
		require.Equal(t, http.StatusForbidden, f.do("GET", "/ui/tools/needy", "").Code, "it lacks grants")
		require.Equal(t, http.StatusNotFound, f.do("GET", "/ui/tools/nothing", "").Code)
	})
}

// The values that are typed reach the tool, with the types of the schema.
func TestCall(t *testing.T) {
	for name, test := range map[string]struct {
		form url.Values
		want string
	}{
		"nothing but what is required": {url.Values{"arg.n": {"1"}}, `{"n":1,"on":false,"text":"hello"}`},
		"as the form begins":           {url.Values{"arg.n": {"1"}, "arg.text": {"hello"}, "arg.on": {"true"}}, `{"n":1,"on":true,"text":"hello"}`},
		"all": {url.Values{
			"arg.text": {"two\r\nlines"}, "arg.word": {" w "}, "arg.n": {"10"}, "arg.x": {"-.5"}, "arg.yes": {"true"}, "arg.on": {"true"},
			"arg.color": {"2"}, "arg.tags": {` ["a"] `}, "arg.key": {"s"}, "arg.login": {`{"code":"c"}`},
		}, `{"text":"two\nlines","word":" w ","n":10,"x":-0.5,"yes":true,"on":true,"color":7,"tags":["a"],"key":"s","login":{"code":"c"}}`},
		"JSON instead": {url.Values{"arg.n": {"nonsense"}, "json": {` {"n":3,"color":"red"} `}}, `{"n":3,"color":"red","on":true,"text":"hello"}`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := open(t, "form")
				page := f.submit("form", http.StatusOK, test.form)
				require.Contains(t, page, "filled in")
				require.Contains(t, page, "units of fuel")
				_, value, _ := strings.Cut(page, "<pre class=\"text\">\n")
				value, _, _ = strings.Cut(value, "</pre>")
				require.JSONEq(t, test.want, html.UnescapeString(value))
			})
		})
	}
}

// Objects are given by fields, as deep as forms go, and left out if nothing was typed.
func TestNestedForm(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"to":{"type":"object","description":"Whom","properties":{"name":{"type":"string","maxLength":9},"a/b~c":{"type":"integer"},"vip":{"type":"boolean"}},"required":["name"]},
		"page":{"type":"object","properties":{"size":{"type":"integer"},"wrap":{"type":"boolean","default":true},"sort":{"type":"string","default":"up","maxLength":9}},"required":["size"]},
		"deep":{"type":"object","properties":{"er":{"type":"object","properties":{"est":{"type":"object","properties":{"end":{"type":"object","properties":{"x":{"type":"string"}}}}}}}}},
		"free":{"type":"object"},
		"preset":{"type":"object","default":{"x":1},"properties":{"x":{"type":"integer"}}},
		"login":{"type":"object","properties":{"code":{"type":"string","x-secret":true}}}
	},"required":["to"]}`
	f := newForm("args", json.RawMessage(schema))
	kinds := map[string]fieldKind{}
	var walk func([]field)
	walk = func(all []field) {
		for _, one := range all {
			kinds[one.Path] = one.Kind
			walk(one.Fields)
		}
	}
	walk(f.Fields)
	require.Equal(t, map[string]fieldKind{
		"to": kindGroup, "to/name": kindText, "to/a~1b~0c": kindNumber, "to/vip": kindCheck,
		"page": kindGroup, "page/size": kindNumber, "page/wrap": kindCheck, "page/sort": kindText,
		"deep": kindGroup, "deep/er": kindGroup, "deep/er/est": kindGroup, "deep/er/est/end": kindJSON,
		"free": kindJSON, "preset": kindJSON, "login": kindHidden,
	}, kinds)

	untouched := map[string]string{"page/wrap": "true", "page/sort": "up", "preset": `{"x":1}`}
	for name, test := range map[string]struct {
		typed map[string]string
		want  string // empty: a value has a problem
	}{
		"untouched":             {nil, `{"to":{"name":""},"preset":{"x":1}}`},
		"what is required":      {map[string]string{"to/name": "Ana"}, `{"to":{"name":"Ana"},"preset":{"x":1}}`},
		"an odd name":           {map[string]string{"to/a~1b~0c": "7", "to/vip": "true"}, `{"to":{"name":"","a/b~c":7,"vip":true},"preset":{"x":1}}`},
		"an optional object":    {map[string]string{"page/size": "3"}, `{"to":{"name":""},"page":{"size":3,"wrap":true,"sort":"up"},"preset":{"x":1}}`},
		"a box that is cleared": {map[string]string{"page/wrap": ""}, `{"to":{"name":""},"page":{"wrap":false,"sort":"up"},"preset":{"x":1}}`},
		"deep":                  {map[string]string{"deep/er/est/end": `{"x":"y"}`}, `{"to":{"name":""},"deep":{"er":{"est":{"end":{"x":"y"}}}},"preset":{"x":1}}`},
		"a problem inside":      {map[string]string{"page/size": "many"}, ""},
	} {
		typed := url.Values{}
		for _, all := range []map[string]string{untouched, test.typed} {
			for path, value := range all {
				typed.Set(argPrefix+path, value)
				if value == "" {
					typed.Del(argPrefix + path)
				}
			}
		}
		f := newForm("args", json.RawMessage(schema))
		args, ok := f.fill(typed)
		require.Equal(t, test.want != "", ok, name)
		if ok {
			require.JSONEq(t, test.want, string(args), name)
		}
	}
}

// However many properties there are, and however deep, a form has a bounded number of
// fields.
func TestFormIsBounded(t *testing.T) {
	wide := func(n int, of string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"p%d":%s`, i, of))
		}
		return `{"type":"object","properties":{` + strings.Join(all, ",") + `}}`
	}
	count := 0
	var walk func([]field)
	walk = func(all []field) {
		for _, f := range all {
			count++
			walk(f.Fields)
		}
	}
	walk(newForm("args", json.RawMessage(wide(10, wide(10, wide(10, `{"type":"string"}`))))).Fields)
	require.LessOrEqual(t, count, maxFields)
	require.Greater(t, count, 10)
	require.Empty(t, newForm("args", json.RawMessage(wide(maxFields+1, `true`))).Fields)
	deep := strings.Repeat(`{"type":"object","properties":{"x":`, 1000) + "{}" + strings.Repeat("}}", 1000)
	require.Len(t, newForm("args", json.RawMessage(deep)).Fields, 1)
}

// A call that cannot be made says why, and keeps what was typed in the form, except for
// secrets.
func TestCallRefused(t *testing.T) {
	for name, test := range map[string]struct {
		form url.Values
		want string
	}{
		"no number":     {url.Values{"arg.n": {"ten"}}, "Expected a number"},
		"no JSON":       {url.Values{"arg.n": {"1"}, "arg.tags": {"a, b"}}, "Expected JSON, such as [&#34;a&#34;, &#34;b&#34;]"},
		"out of bounds": {url.Values{"arg.n": {"11"}}, "/n: expected at most 10, found 11"},
		"missing":       {url.Values{}, "missing"},
		"broken JSON":   {url.Values{"json": {"{"}}, "arguments"},
		"bad session":   {url.Values{"arg.n": {"1"}, "session": {"a\nb"}}, "The name of the session"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := open(t, "form")
				test.form.Set("arg.word", "still here")
				test.form.Set("arg.key", "hunter2")
				test.form.Set("arg.login", `{"code":"hunter3"}`)
				w := f.post("/ui/tools/form", test.form.Encode())
				page := w.Body.String()
				inspect(t, page)
				require.Contains(t, page, test.want)
				require.Contains(t, page, "still here")
				require.NotContains(t, page, "hunter2")
				require.NotContains(t, page, "hunter3")
				require.NotContains(t, f.logs.String(), "hunter")
			})
		})
	}
}

// A call that takes long, or that asks, continues as a run with a page of its own.
func TestCallParks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "sleeper", "asker")
		to := f.submit("sleeper", http.StatusSeeOther, url.Values{"do": {"call"}})
		require.Contains(t, f.get(to), "running")

		to = f.submit("asker", http.StatusSeeOther, url.Values{"do": {"call"}, "session": {"ana"}})
		synctest.Wait()
		page := f.get(to)
		require.Contains(t, page, "Who are you?")
		golden(t, "asking", page)

		for _, bad := range []string{"key=name.1&action=accept&arg.name=x", "key=name.1&action=accept", "key=name.1&action=shrug"} {
			w := f.post(to+"/answers", bad)
			require.Equal(t, http.StatusUnprocessableEntity, w.Code, w.Body)
			inspect(t, w.Body.String())
			require.Contains(t, w.Body.String(), "not an answer to the question name.1")
		}
		require.Equal(t, http.StatusConflict, f.post(to+"/answers", "key=other&action=accept").Code)
		require.Equal(t, http.StatusSeeOther, f.post(to+"/answers", "key=name.1&action=accept&arg.name=Ana").Code)
		synctest.Wait()
		page = f.get(to)
		require.Contains(t, page, "succeeded")
		require.Contains(t, page, "Ana")
		require.NotContains(t, page, "Who are you?")
		require.Equal(t, http.StatusConflict, f.post(to+"/answers", "key=name.1&action=accept&arg.name=Bo").Code)
	})
	for _, action := range []string{"decline", "cancel"} {
		bubble(t, func(t *testing.T) {
			f := open(t, "asker")
			to := f.submit("asker", http.StatusSeeOther, url.Values{})
			synctest.Wait()
			require.Equal(t, http.StatusSeeOther, f.post(to+"/answers", "key=name.1&arg.name=Ana&action="+action).Code)
			synctest.Wait()
			require.Contains(t, f.get(to), action)
		})
	}
}

// A call from the page needs approval like any other: a click, which anyone who may call
// tools can make, approves nothing.
func TestCallIsNotApproval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "danger")
		for _, do := range []string{"call", "spawn", "schedule"} {
			page := f.submit("danger", http.StatusForbidden, url.Values{"do": {do}, "sure": {"true"}, "cron": {"0 3 * * *"}})
			require.Contains(t, page, "nobody can be asked here")
		}
	})
	bubble(t, func(t *testing.T) {
		f := open(t, "waits")
		for _, do := range []string{"call", "spawn"} {
			to := f.submit("waits", http.StatusSeeOther, url.Values{"do": {do}, "sure": {"true"}})
			require.Contains(t, f.get(to), `Waits for <a href="/ui/approvals#wait-`)
			yes := url.Values{"key": {"toolhost/approval"}, "action": {"accept"}, "arg.decision": {"session"}}
			require.Equal(t, http.StatusConflict, f.post(to+"/answers", yes.Encode()).Code)
			synctest.Wait()
			require.Contains(t, f.get(to), `Waits for <a href="/ui/approvals#wait-`)
		}
	})
}

// Pictures are shown if browsers run nothing in them; the rest can be saved.
func TestContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "picture", "crash")
		run := "/ui/runs/" + f.spawn("ana", "picture")
		for _, page := range []string{f.submit("picture", http.StatusOK, url.Values{}), f.get(run)} {
			require.Contains(t, page, `<img src="data:image/png;base64,iVBORw0KGgo="`)
			require.Contains(t, page, `<a href="data:application/octet-stream;base64,UklGRg==" download="content">Save</a>`)
			require.NotContains(t, page, "data:audio")
			require.Contains(t, page, "a &lt;b&gt;caption&lt;/b&gt;")
		}
		svg := newBlocks([]abi.Block{{Type: "image", MIMEType: "image/svg+xml", Data: []byte("<svg/>")}})
		require.Empty(t, svg[0].Picture)
		require.NotEmpty(t, svg[0].File)
		large := newBlocks([]abi.Block{{Type: "image", MIMEType: "image/png", Data: make([]byte, maxInline+1)}})
		require.Equal(t, []any{int64(maxInline + 1), template.URL(""), template.URL("")}, []any{large[0].Size, large[0].Picture, large[0].File})

		page := f.get("/ui/runs/" + f.spawn("ana", "crash"))
		require.Contains(t, page, "Reason")
		require.Contains(t, page, "unreachable")
		page = f.submit("crash", http.StatusOK, url.Values{})
		require.Contains(t, page, "Failed: internal")
		require.Contains(t, page, "crashed: unreachable", "the page is for operators")
	})
}

func TestSpawnAndRepeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "form", "echo")
		to := f.submit("form", http.StatusSeeOther, url.Values{"do": {"spawn"}, "arg.n": {"4"}, "session": {"ana"}, "title": {"Four"}, "notify": {"true"}})
		synctest.Wait()
		first := f.run(strings.TrimPrefix(to, "/ui/runs/"))
		require.Equal(t, []any{"ana", "Four", "operator", wire.StatusSucceeded, true}, []any{first.Session, first.Title, first.By, first.Status, first.SignalOnCompletion})

		w := f.post(to+"/rerun", "")
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		synctest.Wait()
		again := f.run(strings.TrimPrefix(w.Header().Get("Location"), "/ui/runs/"))
		require.NotEqual(t, first.TaskID, again.TaskID)
		require.Equal(t, []any{"ana", "Four", wire.StatusSucceeded}, []any{again.Session, again.Title, again.Status})

		secret := f.submit("form", http.StatusSeeOther, url.Values{"do": {"spawn"}, "arg.n": {"4"}, "arg.key": {"hunter2"}})
		synctest.Wait()
		page := f.get(secret)
		require.NotContains(t, page, "Run again", "its secret is not stored")
		_, details, _ := strings.Cut(page, `id="details"`)
		require.NotContains(t, details, "hunter2")
		w = f.post(secret+"/rerun", "")
		require.Equal(t, http.StatusUnprocessableEntity, w.Code)
		require.Contains(t, w.Body.String(), "secrets are not stored")
	})
}

// A message is sent to a run whose tool reads messages. What the operator types is JSON,
// or else a string.
func TestSendMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "reader", "sleeper")
		id, deaf := f.spawn("ana", "reader"), f.spawn("ana", "sleeper")
		path := "/ui/runs/" + id + "/messages"
		page := f.get("/ui/runs/" + id)
		require.Contains(t, page, path)
		require.Contains(t, page, "none that is not read")
		require.NotContains(t, f.get("/ui/runs/"+deaf), "/messages")

		for _, text := range []string{` {"skip":"<b>.txt"} `, `skip "<b>"`} {
			w := f.post(path, url.Values{"message": {text}}.Encode())
			require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
			require.Equal(t, "/ui/runs/"+id, w.Header().Get("Location"))
		}
		require.Contains(t, f.get("/ui/runs/"+id), "2 not read yet")
		require.Equal(t, http.StatusUnprocessableEntity, f.post(path, "message=+").Code)
		w := f.post("/ui/runs/"+deaf+"/messages", "message=1")
		require.Equal(t, http.StatusUnprocessableEntity, w.Code)
		require.Contains(t, w.Body.String(), "sleeper does not read messages")

		time.Sleep(2 * time.Minute)
		run, err := f.service.AllSessions().WholeRun(t.Context(), id)
		require.NoError(t, err)
		var got struct {
			Messages []struct {
				By      string          `json:"by"`
				Message json.RawMessage `json:"message"`
			} `json:"messages"`
		}
		require.NoError(t, json.Unmarshal(run.Result, &got))
		require.Len(t, got.Messages, 2)
		require.Equal(t, "operator", got.Messages[0].By)
		require.JSONEq(t, `{"skip":"<b>.txt"}`, string(got.Messages[0].Message))
		require.JSONEq(t, `"skip \"<b>\""`, string(got.Messages[1].Message))
		require.NotContains(t, f.get("/ui/runs/"+id), "/messages")
		w = f.post(path, "message=1")
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), "has ended (succeeded) and takes no more messages")
	})
}

func TestStopMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "sleeper", "echo")
		ended, one, two, other := f.spawn("ana", "echo"), f.spawn("ana", "sleeper"), f.spawn("bo", "sleeper"), f.spawn("bo", "sleeper")
		page := f.get("/ui/runs?active=true")
		for _, id := range []string{one, two, other} {
			require.Contains(t, page, fmt.Sprintf(`<input type="checkbox" name="run" value="%s"`, id))
		}
		require.Contains(t, page, `<input type="hidden" name="back" value="status=active">`)

		w := f.post("/ui/stop", url.Values{"run": {one, two, ended, "nonsense"}, "back": {"active=true"}}.Encode())
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		require.Equal(t, "/ui/runs?active=true", w.Header().Get("Location"))
		synctest.Wait()
		require.Equal(t, []wire.Status{wire.StatusCanceled, wire.StatusCanceled, wire.StatusRunning, wire.StatusSucceeded},
			[]wire.Status{f.run(one).Status, f.run(two).Status, f.run(other).Status, f.run(ended).Status})

		require.Equal(t, "/", f.post("/ui/stop", "").Header().Get("Location"))
		require.Equal(t, "/ui/runs?%2F%2Fevil.example=", f.post("/ui/stop", "back=//evil.example").Header().Get("Location"))
		many := url.Values{"run": slices.Repeat([]string{one}, maxChosen+1)}
		require.Equal(t, http.StatusUnprocessableEntity, f.post("/ui/stop", many.Encode()).Code)
	})
}

func TestSchedules(t *testing.T) {
	bubble(t, func(t *testing.T) { // which begins at midnight, 2000-01-01
		f := open(t, "echo", "sleeper")
		for _, bad := range []url.Values{
			{}, {"cron": {"nonsense"}}, {"cron": {"0 3 * * *"}, "at": {"2000-02-01T09:30"}}, {"at": {"1999-02-01T09:30"}}, {"at": {"tomorrow"}},
			{"cron": {"0 3 * * *"}, "timezone": {"Nowhere/Land"}}, {"at": {"2000-02-01T09:30"}, "timezone": {"Nowhere/Land"}}, {"cron": {"0 3 * * *"}, "overlap": {"shrug"}},
		} {
			bad.Set("do", "schedule")
			page := f.submit("echo", http.StatusUnprocessableEntity, bad)
			require.Contains(t, page, `role="alert"`)
		}

		to := f.submit("echo", http.StatusSeeOther, url.Values{"do": {"schedule"}, "at": {"2000-02-01T09:30"}, "timezone": {"Europe/Zurich"}, "session": {"ana"}, "title": {"Later"}})
		once := strings.TrimPrefix(to, "/ui/schedules#schedule-")
		s, err := f.service.AllSessions().Schedules().Get(t.Context(), once)
		require.NoError(t, err)
		require.Equal(t, []any{"ana", "Later", time.Date(2000, 2, 1, 8, 30, 0, 0, time.UTC)}, []any{s.Session, s.Title, s.At})

		to = f.submit("sleeper", http.StatusSeeOther, url.Values{"do": {"schedule"}, "cron": {"0 3 * * *"}, "overlap": {"skip"}})
		path := "/ui/schedules/" + strings.TrimPrefix(to, "/ui/schedules#schedule-")
		w := f.post(path+"/fire", "")
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		require.Contains(t, f.get(w.Header().Get("Location")), "operator")
		time.Sleep(time.Second)
		w = f.post(path+"/fire", "")
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), "a run of the schedule is active")

		require.Equal(t, http.StatusSeeOther, f.post(path+"/disable", "").Code)
		require.Contains(t, f.get("/ui/schedules"), path+"/enable")
		require.Equal(t, http.StatusSeeOther, f.post(path+"/enable", "").Code)
		require.NotContains(t, f.get("/ui/schedules"), path+"/enable")
		require.Contains(t, f.get("/ui/schedules"), path+"/remove")
		require.Equal(t, http.StatusSeeOther, f.post(path+"/remove", "").Code)
		require.NotContains(t, f.get("/ui/schedules"), path)
		require.Equal(t, http.StatusNotFound, f.post(path+"/remove", "").Code)
		for _, do := range []string{"fire", "enable", "disable", "remove"} {
			require.Equal(t, http.StatusNotFound, f.post("/ui/schedules/nonsense/"+do, "").Code)
		}
	})
}

// Runs that have ended are removed one by one, or those that are selected; a run that has
// not ended stays.
func TestRemove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "sleeper", "echo")
		active := f.spawn("ana", "sleeper")
		one, two, three := f.spawn("ana", "echo"), f.spawn("bob", "echo"), f.spawn("ana", "echo")
		time.Sleep(time.Second)
		page := f.get("/ui/runs")
		require.Contains(t, page, `formaction="/ui/remove"`)
		require.Equal(t, 4, strings.Count(page, `name="run"`))
		require.NotContains(t, f.get("/ui/runs?active=true"), "/ui/remove", "none of them can be removed")
		require.Contains(t, f.get("/ui/runs?status=succeeded"), `action="/ui/remove"`)
		require.NotContains(t, f.get("/ui/runs/"+active), "/remove")
		require.Equal(t, http.StatusConflict, f.post("/ui/runs/"+active+"/remove", "").Code)

		require.Contains(t, f.get("/ui/runs/"+one), "/ui/runs/"+one+"/remove")
		w := f.post("/ui/runs/"+one+"/remove", "")
		require.Equal(t, []any{http.StatusSeeOther, "/ui/runs"}, []any{w.Code, w.Header().Get("Location")})
		for _, path := range []string{"", "/remove"} {
			do := map[string]string{"": "GET", "/remove": "POST"}[path]
			require.Equal(t, http.StatusNotFound, f.do(do, "/ui/runs/"+one+path, "", "Content-Type", "application/x-www-form-urlencoded").Code)
		}

		w = f.post("/ui/remove", url.Values{"run": {active, one, two, "nonsense"}, "back": {"tool=echo"}}.Encode())
		require.Equal(t, []any{http.StatusSeeOther, "/ui/runs?tool=echo"}, []any{w.Code, w.Header().Get("Location")})
		left, err := f.service.AllSessions().Runs(t.Context(), server.RunQuery{})
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.Equal(t, []string{three, active}, []string{left[0].TaskID, left[1].TaskID})
		require.Nil(t, f.run(active).Stopping)
	})
}

// TestOnlyContent: a result that consists of a picture is not reported as missing.
func TestOnlyContent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "shot", "echo")
		page := f.submit("shot", http.StatusOK, url.Values{})
		require.Contains(t, page, "data:image/png")
		require.NotContains(t, page, "The tool returned no value.")
	})
}

// TestExamples: a field shows the example of its schema, unless it is secret.
func TestExamples(t *testing.T) {
	bubble(t, func(t *testing.T) {
		page := open(t, "form").get("/ui/tools/form")
		require.Contains(t, page, `placeholder="tea"`)
		require.Contains(t, page, `placeholder="7"`)
		require.NotContains(t, page, `placeholder="k3y"`)
	})
}
