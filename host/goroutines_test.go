package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// buildWaiting builds the plugin whose goroutines wait, once.
var buildWaiting = sync.OnceValues(fixture{dir: "../guest/testdata/waiting"}.build)

func waitingWasm(t testing.TB) []byte {
	t.Helper()
	file, err := buildWaiting()
	require.NoError(t, err)
	wasm, err := os.ReadFile(file)
	require.NoError(t, err)
	return wasm
}

// waitingCall calls a case of the fixture.
func waitingCall(name, more string) host.Call {
	return host.Call{
		Tool: "waiting", Args: json.RawMessage(`{"case":"` + name + `"` + more + `}`),
		Traits: host.Traits{Plugin: "waiting"}, Policy: host.Policy{Memory: 256 << 20},
	}
}

// otherTool answers each call to a tool with its argument n, once all of so many calls
// have begun. With a negative one it answers when it is canceled.
func otherTool(together int) host.Services {
	var all sync.WaitGroup
	all.Add(together)
	return host.Services{CallTool: func(ctx context.Context, t host.ToolCall) (abi.Result, error) {
		var in struct{ N int }
		_ = json.Unmarshal(t.Args, &in)
		if in.N < 0 {
			<-ctx.Done()
			return abi.Result{Kind: abi.CanceledKind}, nil
		}
		if in.N < together {
			all.Done()
			all.Wait()
		}
		return abi.Result{Kind: abi.Success, Value: json.RawMessage(fmt.Sprint(in.N))}, nil
	}}
}

// TestGoroutines: ordinary Go waits, with a clock and without, and in every call of an
// instance alike.
func TestGoroutines(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, waitingWasm(t))
	for _, c := range []struct {
		name, more string
		together   int    // calls to tools that wait for each other
		want       string // empty is any
	}{
		{"sleep", `,"n":0`, 0, `true`},
		{"sleep", `,"n":3`, 0, `true`},
		{"short", ``, 0, `true`},
		{"ticker", ``, 0, `5`},
		{"timeouts", ``, 0, `["context deadline exceeded","func","true","moved"]`},
		{"select", ``, 0, `["after","1","default"]`},
		{"locks", ``, 0, `110`},
		{"pipeline", `,"n":20`, 0, `2470`},
		{"collector", ``, 0, `140`},
		{"tools", `,"n":10`, 10, `[0,1,2,3,4,5,6,7,8,9]`},
		{"first", `,"n":5`, 1, ``},
		{"canceled", ``, 0, `[true,true,1]`},
		{"leak", `,"n":3`, 0, `true`},
		{"busy", ``, 0, `true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 4 {
				req := waitingCall(c.name, c.more)
				req.Policy.Grant = host.Grant{Clock: i%2 == 0, Tools: []string{"other"}}
				req.Services = otherTool(c.together)
				o := do(t.Context(), h, m, req)
				require.NoError(t, o.err, o.stderr)
				require.Equal(t, abi.Success, o.Kind, o.Error)
				if c.want != "" {
					require.JSONEq(t, c.want, string(o.Value))
				}
			}
		})
	}
}

// TestGoroutinesWithoutClock: without a clock the order of things depends on nothing but
// the plugin, to the last unit of fuel.
func TestGoroutinesWithoutClock(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, waitingWasm(t))
	first := do(t.Context(), h, m, waitingCall("order", ""))
	require.NoError(t, first.err)
	require.JSONEq(t, `["1 0","1 1","1 2","2 2","3 2","4 2","5 2"]`, string(first.Value))
	for range 3 {
		again := do(t.Context(), h, m, waitingCall("order", ""))
		require.NoError(t, again.err)
		require.Equal(t, string(first.Value), string(again.Value))
		require.Equal(t, first.Usage.Fuel, again.Usage.Fuel)
	}
}

// TestGoroutinesTogether: more goroutines wait than a call may start operations.
func TestGoroutinesTogether(t *testing.T) {
	h := newHost(t, nil)
	req := waitingCall("tools", `,"n":90`)
	req.Policy.Grant = host.Grant{Tools: []string{"other"}}
	req.Services = otherTool(abi.MaxPending - 1)
	o := do(t.Context(), h, compile(t, h, waitingWasm(t)), req)
	require.NoError(t, o.err)
	var answers []int
	require.NoError(t, json.Unmarshal(o.Value, &answers))
	for i, n := range answers {
		require.Equal(t, i, n)
	}
}

// TestGoroutinesMixed: a call waits for operations of each kind at a time.
func TestGoroutinesMixed(t *testing.T) {
	h := newHost(t, nil)
	var all sync.WaitGroup
	all.Add(3)
	together := func() { all.Done(); all.Wait() }
	req := waitingCall("mixed", "")
	req.Policy.Grant = host.Grant{Clock: true, Ask: true, Tools: []string{"other"}}
	req.Services = host.Services{
		Ask: func(context.Context, abi.Questions) (abi.Answers, error) {
			together()
			return abi.Answers{Answers: map[string]abi.Answer{"q": {Action: "decline"}}}, nil
		},
		Receive: func(context.Context, int64, time.Duration) ([]host.Message, error) {
			together()
			return []host.Message{{ID: 1, Data: json.RawMessage(`"hello"`)}}, nil
		},
		CallTool: func(context.Context, host.ToolCall) (abi.Result, error) {
			together()
			return abi.Result{Kind: abi.Success, Value: json.RawMessage(`7`)}, nil
		},
	}
	o := do(t.Context(), h, compile(t, h, waitingWasm(t)), req)
	require.NoError(t, o.err)
	require.JSONEq(t, `["ask decline<nil>","denied true","message \"hello\"","operation","sleep","tool 7 <nil>"]`, string(o.Value), o.Error)
}

// TestGoroutinesHTTP: requests of several goroutines are made at a time, and end with
// their contexts.
func TestGoroutinesHTTP(t *testing.T) {
	const requests = 8
	var all sync.WaitGroup
	all.Add(requests)
	s := newWebServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
			return
		}
		all.Done()
		all.Wait()
		fmt.Fprint(w, r.URL.Path)
	})
	m := compile(t, s.host, waitingWasm(t))
	fetch := func(name, more string, clock bool) outcome {
		req := waitingCall(name, more)
		req.Policy.Grant = host.Grant{Clock: clock, HTTP: []host.HTTPRule{s.rule("/*")}}
		return do(t.Context(), s.host, m, req)
	}

	for _, clock := range []bool{false, true} {
		if clock {
			all.Add(requests)
		}
		o := fetch("http", fmt.Sprintf(`,"n":%d,"url":%q`, requests, s.URL), clock)
		require.NoError(t, o.err)
		require.JSONEq(t, `["/0","/1","/2","/3","/4","/5","/6","/7"]`, string(o.Value), o.Error)
	}
	o := fetch("hurried", fmt.Sprintf(`,"n":5,"url":%q`, s.URL+"/never"), true)
	require.NoError(t, o.err)
	require.JSONEq(t, `[true,true]`, string(o.Value), o.Error)
}

// TestHowGoroutinesEnd: how a call ends that does not return.
func TestHowGoroutinesEnd(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, waitingWasm(t))
	for _, c := range []struct{ name, text, stderr string }{
		{"deadlock", "the tool waits for something that cannot happen: all goroutines are blocked", ""},
		{"channel", "the tool waits for something that cannot happen: all goroutines are blocked", ""},
		{"goexit", "the tool ended its goroutine with runtime.Goexit", ""},
		{"panic", "after waiting", ""},
		{"crash", "the plugin crashed", "in a goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 4 {
				req := waitingCall(c.name, "")
				req.Policy.Grant.Clock = i%2 == 0
				o := do(t.Context(), h, m, req)
				require.ErrorContains(t, o.err, c.text)
				require.Equal(t, abi.Internal, o.Kind)
				require.Contains(t, o.stderr, c.stderr)
			}
		})
	}
	o := do(t.Context(), h, m, waitingCall("sleep", `,"n":1`))
	require.NoError(t, o.err, "the next call finds nothing of them")
}

// TestGoroutinesStop: a tool that sleeps when it is stopped may finish.
func TestGoroutinesStop(t *testing.T) {
	h := newHost(t, nil)
	m := compile(t, h, waitingWasm(t))
	for _, clock := range []bool{false, true} {
		stop := make(chan struct{})
		var once sync.Once
		req := waitingCall("until", "")
		req.Stopping, req.Policy.Grant.Clock = stop, clock
		req.Progress = func(host.Progress) { once.Do(func() { close(stop) }) }
		o := do(t.Context(), h, m, req)
		require.NoError(t, o.err)
		require.JSONEq(t, `"stopped"`, string(o.Value))
	}
}

// TestGoroutinesDeaf: a tool that sleeps whatever happens waits without fuel until it is
// ended.
func TestGoroutinesDeaf(t *testing.T) {
	waitingWasm(t) // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		m := compile(t, h, waitingWasm(t))
		ended := func(grace time.Duration) int64 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := make(chan struct{})
			req := waitingCall("deaf", "")
			req.Stopping, req.Policy.Grant.Clock = stop, true
			req.Progress = func(host.Progress) {
				close(stop)
				time.AfterFunc(grace, cancel)
			}
			o := do(ctx, h, m, req)
			require.ErrorIs(t, o.err, context.Canceled)
			return o.Usage.Fuel
		}

		ended(0) // starts up
		require.LessOrEqual(t, ended(200*time.Millisecond), 2*ended(10*time.Millisecond))
	})
}

// BenchmarkAwait compares a goroutine that waits for a tool, which the host resumes, with
// a hand-made plugin that waits for it in call.
func BenchmarkAwait(b *testing.B) {
	const awaits = 100 // fewer than a call may make
	h := newHost(b, nil)
	granted := host.Policy{Memory: 256 << 20, Grant: host.Grant{Tools: []string{"other"}}}
	request := `{"tool":"other","args":{"n":1}}`
	one := capability(dataAt, 9, dataAt+9, int64(len(request)))
	byHand := compile(b, h, guest{data: "tool.call" + request, invoke: answering(seq(times(awaits-1, drop(one)), tell(one)))}.wasm())
	inGo := compile(b, h, waitingWasm(b))
	of := func(name string, m *host.Module, req host.Call) *lane {
		return &lane{name: name, call: func() {
			req.Policy, req.Services = granted, otherTool(0)
			o := do(b.Context(), h, m, req)
			require.NoError(b, o.err)
		}}
	}
	inTurn(b, []*lane{
		of("call", byHand, host.Call{}),
		of("go", inGo, waitingCall("one", fmt.Sprintf(`,"n":%d`, awaits))),
		of("go-0", inGo, waitingCall("one", `,"n":0`)),
	})
}
