package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// event is one event of a stream.
type event struct {
	name string
	part
}

// client follows a page. It applies the events as the script does, but for the
// order of what is new.
type client struct {
	t      *testing.T
	mu     sync.Mutex
	header http.Header
	status int
	text   bytes.Buffer
	writes []time.Time
	stall  chan struct{} // a client that takes nothing until it is closed
	leave  context.CancelFunc
	ended  chan struct{}
}

// follow asks for a page as a stream.
func (f *fixture) follow(path string) *client {
	t, ok := f.t.(*testing.T)
	require.True(f.t, ok)
	return f.followWith(&client{t: t}, path)
}

func (f *fixture) followWith(c *client, path string) *client {
	c.header, c.ended = http.Header{}, make(chan struct{})
	ctx, leave := context.WithCancel(f.t.Context())
	c.leave = leave
	r := httptest.NewRequest("GET", path, nil).WithContext(ctx)
	r.Header.Set("Accept", eventStream)
	go func() {
		defer close(c.ended)
		f.page.ServeHTTP(c, r)
	}()
	f.t.Cleanup(func() { leave(); <-c.ended })
	synctest.Wait()
	return c
}

func (c *client) Header() http.Header    { return c.header }
func (c *client) WriteHeader(status int) { c.status = status }
func (c *client) FlushError() error      { return nil }

func (c *client) Write(p []byte) (int, error) {
	if c.stall != nil {
		<-c.stall
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, time.Now())
	return c.text.Write(p)
}

// take waits and returns the events that came since the last time.
func (c *client) take(wait time.Duration) []event {
	c.t.Helper()
	time.Sleep(wait)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var events []event
	for block := range strings.SplitSeq(strings.TrimPrefix(c.text.String(), "retry: 1000\n"), "\n\n") {
		var e event
		if block == "" || block == ": alive" {
			continue
		}
		lines := strings.Split(block, "\n")
		require.Len(c.t, lines, 2, block)
		e.name = strings.TrimPrefix(lines[0], "event: ")
		data := []byte(strings.TrimPrefix(lines[1], "data: "))
		if e.name == eventHello {
			require.Equal(c.t, `"`+build+`"`, string(data))
		} else {
			require.NoError(c.t, json.Unmarshal(data, &e.part), block)
		}
		events = append(events, e)
	}
	c.text.Reset()
	return events
}

// say is what events do, in short.
func say(events []event) string {
	var out []string
	for _, e := range events {
		out = append(out, strings.TrimSpace(e.name+" "+e.ID))
	}
	return strings.Join(out, ", ")
}

// A page that is followed is there at once, and then what of it changes.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "chatty", "echo")
		c := f.follow("/")
		require.Equal(t, http.StatusOK, c.status)
		require.Equal(t, eventStream, c.header.Get("Content-Type"))
		require.Equal(t, "hello, put problems, put usage, put active, put ended", say(c.take(0)))
		require.Empty(t, c.take(10*time.Second), "nothing happens")

		id := f.spawn("ana", "chatty")
		events := c.take(debounce)
		require.Equal(t, "put usage, put active", say(events))
		require.Contains(t, events[1].HTML, id)
		require.Equal(t, "put active", say(c.take(refresh)), "its clock continues")

		run := f.follow("/ui/runs/" + id)
		require.Equal(t, "hello, put run, put stop, put end, put output, put facts", say(run.take(0)))
		time.Sleep(10 * time.Second)
		events = run.take(debounce)
		i := slices.IndexFunc(events, func(e event) bool { return e.ID == "output" })
		require.GreaterOrEqual(t, i, 0, say(events))
		require.Contains(t, events[i].HTML, `<span id="out-1-0">one`+"\ntwo\n")
		require.NotContains(t, say(events), "put facts", "what has not changed")
		time.Sleep(10 * time.Second)
		events = run.take(debounce)
		require.Contains(t, say(events), "put stop")
		last := f.get("/ui/runs/" + id)
		for _, e := range events {
			if e.ID != "run" {
				require.Contains(t, last, e.HTML, "what a browser without the script sees")
			}
		}
		require.Contains(t, say(c.take(0)), "put ended")
	})
}

// However much happens, a client gets it a few times a second.
func TestCoalesced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		m := newBusy(ctx, 64)
		c := &client{t: t, header: http.Header{}, ended: make(chan struct{})}
		p := &lister{busy: m}
		go func() {
			defer close(c.ended)
			st := &stream{w: c, flush: c.FlushError, page: p, shown: map[string]string{}}
			_ = st.run(ctx, m.events)
		}()
		time.Sleep(10 * time.Second)
		leave()
		<-c.ended
		require.Greater(t, p.heardOf, 2000, "it was busy")
		require.LessOrEqual(t, len(c.writes), 1+int(10*time.Second/debounce))
		require.Greater(t, len(c.writes), 30)
	})
}

// busy are runs that report progress twenty times a second.
type busy struct {
	mu     sync.Mutex
	runs   []wire.Run
	events chan wire.Event
	missed bool // an event was dropped, and a watcher does not know it yet
}

func newBusy(ctx context.Context, n int) *busy {
	b := &busy{events: make(chan wire.Event, 256), runs: make([]wire.Run, n)}
	for i := range b.runs {
		b.runs[i] = wire.Run{TaskID: fmt.Sprint("bg_", i), Session: "ana", Status: wire.StatusRunning, Attempt: 1}
	}
	go func() {
		for done := 0.0; ctx.Err() == nil; done++ {
			b.mu.Lock()
			for i := range b.runs {
				b.runs[i].Progress = &wire.Progress{Done: done, Total: 200, Message: "on and on"}
				run := b.runs[i]
				b.send(wire.Event{Kind: wire.EventBeat, Run: &run})
			}
			b.mu.Unlock()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return b
}

// send drops events that a slow watcher has no room for.
func (b *busy) send(e wire.Event) {
	if b.missed = b.missed && len(b.events) > 0; b.missed {
		return
	}
	if b.missed = len(b.events) == cap(b.events)-1; b.missed {
		e = wire.Event{Kind: wire.EventMissed}
	}
	b.events <- e
}

// lister is a page of nothing but rows.
type lister struct {
	*busy
	heardOf int
	missed  bool
}

func (*lister) name() (title, menu string) { return "", "" }
func (l *lister) changed(e wire.Event) bool {
	l.heardOf++
	l.missed = l.missed || e.Kind == wire.EventMissed
	return true
}

func (l *lister) read(context.Context) ([]section, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []section{{"active", slices.Clone(l.runs)}}, nil
}

// A client that takes nothing for a while misses what happens, and has
// everything by the next difference.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		m := newBusy(ctx, 64)
		c := &client{t: t, header: http.Header{}, ended: make(chan struct{}), stall: make(chan struct{})}
		p := &lister{busy: m}
		st := &stream{w: c, flush: c.FlushError, page: p, shown: map[string]string{}}
		go func() {
			defer close(c.ended)
			_ = st.run(ctx, m.events)
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Empty(t, c.writes)
		close(c.stall)
		time.Sleep(2 * time.Second)
		leave()
		<-c.ended
		require.True(t, p.missed)
		events := c.take(0)
		require.Equal(t, "hello, put active, put active", say(events)[:29])
		require.Less(t, len(c.writes), 12)
	})
}

// The record of a run may go while its page is open.
func TestGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		id := f.spawnRequest("ana", server.SpawnRequest{Tool: "echo", Silent: true})
		c := f.follow("/ui/runs/" + id)
		events := c.take(retention + 2*time.Minute)
		require.Equal(t, eventGone, events[len(events)-1].name)
		<-c.ended
		require.Equal(t, "hello, gone", say(f.follow("/ui/runs/"+id).take(0)))
	})
}

// Streams show that they are alive, and end with their clients.
func TestAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := open(t, "echo")
		for _, path := range []string{"/", "/ui/runs", "/ui/schedules", "/ui/plugins"} {
			c := f.follow(path)
			c.take(0)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.GreaterOrEqual(t, len(c.writes), 4, path)
			c.leave()
			<-c.ended
		}
	})
}

// A part is sent when the client does not have it as it is now.
func TestDifferences(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	st, has := &stream{shown: map[string]string{}}, map[string]string{}
	for range 1000 {
		var now []part
		for i := range 5 {
			now = append(now, part{fmt.Sprint("part-", i), fmt.Sprint("<p>", random.IntN(3))})
		}
		was := maps.Clone(has)

		st.out.Reset()
		st.differences(now)

		for block := range strings.SplitSeq(strings.TrimSuffix(st.out.String(), "\n\n"), "\n\n") {
			if block == "" {
				continue
			}
			var p part
			require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(block, "event: put\ndata: ")), &p))
			require.NotEqual(t, was[p.ID], p.HTML, "the client had it")
			has[p.ID] = p.HTML
		}
		for _, p := range now {
			require.Equal(t, p.HTML, has[p.ID])
		}
	}
}
