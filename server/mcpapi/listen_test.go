package mcpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/mcpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// event is a message on the stream of a subscription.
type event struct {
	ID     any
	Method string
	Params struct {
		Meta          map[string]any `json:"_meta"`
		Notifications map[string]any
		TaskID        string
		Status        string
		StatusMessage string
		ResultType    string
		Result        map[string]any
		InputRequests map[string]any
	}
	Result map[string]any
	Error  map[string]any
}

// said describes an event in a word or two.
func (e event) said() string {
	switch e.Method {
	case "":
		return fmt.Sprint("answer ", e.Result["resultType"])
	case "notifications/tasks":
		return e.Params.Status + " " + e.Params.StatusMessage
	}
	return e.Method
}

func saidOf(events []event) (said []string) {
	for _, e := range events {
		said = append(said, e.said())
	}
	return said
}

// hear subscribes to tasks, and returns what came when the server has ended the
// subscription, or the client has after its patience.
func (e *endpoint) hear(user, notifications string) []event {
	e.t.Helper()
	w, _ := e.ask(user, tasksCapability, "subscriptions/listen", `,"notifications":`+notifications)
	require.Equal(e.t, http.StatusOK, w.Code, w.Body)
	var events []event
	for line := range bytes.Lines(w.Body.Bytes()) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			var one event
			require.NoError(e.t, json.Unmarshal(data, &one), "%s", data)
			events = append(events, one)
		}
	}
	return events
}

func taskIDs(ids ...string) string {
	list, _ := json.Marshal(map[string]any{"taskIds": ids})
	return string(list)
}

// A client that listens to tasks of its session is told their states, the changes, and
// the outcomes, in the form of tasks/get, and then nothing more.
func TestListenToTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		mine, fails, others := e.start("ana", "sleeper"), e.start("ana", "fails"), e.start("bo", "forever")
		events := e.hear("ana", taskIDs(others, mine, "bg_never", fails, mine))
		require.Equal(t, "notifications/subscriptions/acknowledged", events[0].Method)
		require.ElementsMatch(t, []any{mine, fails}, events[0].Params.Notifications["taskIds"])
		require.ElementsMatch(t, []string{"working 50%: half way", "working ", "completed ", "completed the file is not there"}, saidOf(events[1:5]))
		require.Equal(t, "answer complete", events[5].said())
		require.Len(t, events, 6)
		for _, one := range events[:5] {
			require.EqualValues(t, e.id, one.Params.Meta["io.modelcontextprotocol/subscriptionId"])
			require.Empty(t, one.Params.ResultType, "that is of results")
		}
		for _, one := range events[3:5] {
			require.Equal(t, e.get("ana", one.Params.TaskID).Result["result"], any(one.Params.Result))
		}
		pending, err := e.service.Session("of ana").Notices(t.Context(), 0)
		require.NoError(t, err)
		require.Empty(t, pending.Notices, "who was shown the end need not be told of it")

		events = e.hear("ana", taskIDs(mine))
		require.Equal(t, []string{"notifications/subscriptions/acknowledged", "completed ", "answer complete"}, saidOf(events), "also when it has ended already")
		events = e.hear("ana", taskIDs(others, "bg_never", ""))
		require.Equal(t, []string{"notifications/subscriptions/acknowledged", "answer complete"}, saidOf(events))
		require.NotContains(t, events[0].Params.Notifications, "taskIds")
	})
}

// A client that does not support tasks is not told of them either.
func TestListenWithoutTasks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		w, m := e.ask("ana", `{}`, "subscriptions/listen", `,"notifications":{"toolsListChanged":true,"taskIds":["`+id+`"]}`)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Equal(t, -32021, m.Error.Code)
		require.Contains(t, m.Error.Data["requiredCapabilities"], "extensions")
		c := connect(t, e.service)
		c.send([]byte(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["x"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"))
		require.Contains(t, string(c.receive(1)), `"code":-32021`)
	})
}

// Questions and their end are told too.
func TestListenToQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveAskers(t)
		_, m := e.ask("ana", canAskTask, "tools/call", `,"name":"confirm_delete","arguments":{"filename":"a.txt","seconds":5}`)
		id := m.Result["taskId"].(string)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			time.Sleep(time.Minute)
			other := &endpoint{Handler: e.Handler, t: t, service: e.service, id: 100}
			for key := range other.get("ana", id).Result["inputRequests"].(map[string]any) {
				_, m := other.ask("ana", tasksCapability, "tasks/update", fmt.Sprintf(`,"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{"confirm":true}}}`, id, key))
				require.Nil(t, m.Error)
			}
		}()
		events := e.hear("ana", taskIDs(id))
		<-answered
		said := saidOf(events)
		require.Equal(t, "working ", said[1])
		asked := slices.IndexFunc(said, func(one string) bool { return strings.HasPrefix(one, "input_required ") })
		require.Positive(t, asked, "%v", said)
		for key := range events[asked].Params.InputRequests {
			require.Regexp(t, `^confirm\.[0-9]+$`, key)
		}
		require.Equal(t, []string{"completed ", "answer complete"}, said[len(said)-2:])
	})
}

// However often a tool reports, a client is told once a second, and always gets the last
// state.
func TestListenToChatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{}
		m := plugintest.Manifest("chatty")
		m.Needs.Clock = true
		m.Tools[0].Hints = abi.Hints{Readonly: true, SupportsBackground: true}
		do := plugintest.Do().Sleep(3)
		for i := range 5 {
			for j := range 20 {
				do = do.Progress(fmt.Sprint(i, "-", j))
			}
			do = do.Sleep(2)
		}
		files["chatty.wasm"] = &fstest.MapFile{Data: plugintest.Plugin{Manifest: m, Invoke: do.Echo()}.Wasm()}
		s := open(t, server.Config{
			Folders: []plugins.Folder{{Path: "chatty", FS: files}}, CacheDir: plugintest.CacheDir(), Grants: map[string]plugins.Grant{"chatty": {Clock: true}},
		})
		h, err := mcpapi.NewHandler(s, mcpapi.Config{})
		require.NoError(t, err)
		t.Cleanup(h.Close)
		e := &endpoint{Handler: h, t: t, service: s}
		began := time.Now()
		events := e.hear("", taskIDs(e.start("", "chatty")))
		said := strings.Join(saidOf(events), "\n")
		require.LessOrEqual(t, len(events), 3+int(time.Since(began)/time.Second), said)
		for i := range 5 {
			require.Contains(t, said, fmt.Sprintf("working 50%%: %d-19", i))
		}
		require.Contains(t, said, "completed")
	})
}

// A subscription ends with its stream, and with the token that admitted it.
func TestListenEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		e.patience = 5 * time.Second
		began := time.Now()
		events := e.hear("ana", taskIDs(id))
		require.Equal(t, []string{"notifications/subscriptions/acknowledged", "working "}, saidOf(events)[:2])
		require.Equal(t, e.patience, time.Since(began))

		until := time.Now().Add(10 * time.Second)
		h, err := mcpapi.NewHandler(e.service, mcpapi.Config{})
		require.NoError(t, err)
		t.Cleanup(h.Close)
		e = &endpoint{Handler: h, t: t, service: e.service, until: until}
		events = e.hear("ana", taskIDs(id))
		require.Equal(t, []string{"notifications/subscriptions/acknowledged", "working ", "answer complete"}, saidOf(events))
		require.Equal(t, until, time.Now())

		e.until = time.Now().Add(time.Hour)
		began = time.Now()
		time.AfterFunc(time.Minute, h.Close)
		e.hear("ana", taskIDs(id))
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// On a pipe, notifications carry the id of their subscription, of which there may be
// several. Nothing more comes once the client has canceled it.
func TestListenOnAPipe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := serveHTTP(t, server.Config{})
		c := connectWith(t, e.service, mcpapi.Config{Session: "of ana"})
		short, long := e.start("ana", "sleeper"), e.start("ana", "forever")
		listen := func(id, wanted string) {
			c.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}}}`+"\n", id, wanted, tasksCapability))
		}
		next := func() (one event) {
			require.NoError(t, json.Unmarshal([]byte(<-c.lines), &one))
			return one
		}
		of := func(id any, said string) {
			one := next()
			require.Equal(t, said, one.said())
			require.Equal(t, id, one.Params.Meta["io.modelcontextprotocol/subscriptionId"])
		}
		listen("1", taskIDs(short, long))
		of(1.0, "notifications/subscriptions/acknowledged")
		require.ElementsMatch(t, []string{"working 50%: half way", "working "}, []string{next().said(), next().said()})
		listen(`"x"`, `{"toolsListChanged":true,"taskIds":["`+short+`"]}`)
		of("x", "notifications/subscriptions/acknowledged")
		of("x", "working 50%: half way")
		require.ElementsMatch(t, []string{"completed ", "completed "}, []string{next().said(), next().said()})
		for _, id := range []string{"1", `"x"`} {
			c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}` + "\n"))
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		_, err := e.service.Session("of ana").Stop(t.Context(), long, "", wire.Stop{})
		require.NoError(t, err)
		require.NoError(t, c.in.Close())
		rest, err := c.wait()
		require.NoError(t, err)
		require.Empty(t, rest)
	})
}

// A panic while a subscription is told of its tasks ends the subscription, not the
// process.
func TestListenPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := new(testlog.Buffer)
		e := serveHTTP(t, server.Config{})
		id := e.start("ana", "forever")
		in, out := io.Pipe()
		ended := make(chan error)
		go func() {
			ended <- mcpapi.Run(t.Context(), e.service, mcpapi.Config{
				Session: "of ana", In: in, Out: panicker{}, Logger: slog.New(slog.NewTextHandler(log, nil)),
			}.WithoutDrain())
		}()
		_, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s}}}`+"\n", taskIDs(id), tasksCapability)
		require.NoError(t, err)
		synctest.Wait()
		require.Contains(t, log.String(), "subscription panicked")
		require.NoError(t, out.Close())
		require.NoError(t, <-ended)
		_, err = e.service.Session("of ana").Stop(t.Context(), id, "", wire.Stop{})
		require.NoError(t, err)
	})
}

// panicker panics when it is to send how a task is.
type panicker struct{}

func (panicker) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"notifications/tasks"`)) {
		panic("a bug")
	}
	return len(line), nil
}
