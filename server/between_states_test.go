package server

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// between is a plugin with one tool for each pair of hints: named after them, it does what
// its argument says.
const between = `
const { tool } = globalThis.toolhost;
export const plugin = { name: 'between', description: 'For tests.', needs: { clock: true, ask: true, kv: 'write', tools: ['*'] } };

const work = {
  async mail({ save }, call) {
    const { seen, last } = save && await call.checkpoint.load() || { seen: [], last: 0 };
    for (let after = last;;) {
      for (const m of await call.receive({ after, wait_ms: 3600e3 })) {
        after = m.id;
        if (m.message === 'end') return seen;
        seen.push(m.message);
        if (save) await call.checkpoint.save({ seen, last: m.id });
      }
    }
  },
  async checkpoint(_, call) {
    const begun = await call.checkpoint.load();
    await call.sleep(60e3);
    await call.checkpoint.save('newer');
    call.output('saved\n');
    await call.tools.slow({ seconds: 90 });
    return [begun ?? 'nothing', call.attempt];
  },
  async write(_, call) {
    const old = await call.kv.get('n');
    await call.sleep(60e3);
    await call.kv.set('n', (old.value ?? 0) + 1);
    call.output('written\n');
    await call.tools.slow({ seconds: 90 });
    return (await call.kv.get('n')).value;
  },
  async answer(_, call) {
    const all = await call.checkpoint.load() ?? [];
    while (all.length < 2) {
      const { go } = await call.ask({ go: { message: 'Go on?', schema: { type: 'object', properties: { answer: { type: 'string' } } } } });
      all.push(go.content.answer);
      await call.checkpoint.save(all);
      await call.tools.slow({ seconds: 90 });
    }
    return all;
  },
  async child(_, call) {
    const saved = await call.checkpoint.load();
    if (!saved) {
      await call.checkpoint.save(await call.tools.put({ text: 'first' }));
      call.output('saved\n');
      await call.tools.slow({ seconds: 90 });
    }
    return [saved ?? 'nothing', await call.tools.put({ text: 'second' })];
  },
};

const own = { supportsBackground: true, messages: true, input: { do: 'string', 'save?': 'boolean' } };
const run = (args, call) => work[args.do](args, call);
export const neither = tool({ description: 'Neither.', ...own }, run);
export const idempotent = tool({ description: 'Idempotent.', idempotent: true, ...own }, run);
export const readonly = tool({ description: 'Readonly.', readonly: true, ...own }, run);
export const both = tool({ description: 'Both.', readonly: true, idempotent: true, ...own }, run);
`

var pairsOfHints = []string{"between_neither", "between_idempotent", "between_readonly", "between_both"}

// openBetween opens a service with the plugin, the tool slow, which is readonly, and the
// tools of the ledger.
func openBetween(t testing.TB, cfg Config, l *ledger) service {
	t.Helper()
	cfg.CacheDir = plugintest.CacheDir()
	cfg.Grants = map[string]plugins.Grant{"between": {Clock: true, Ask: true, Tools: []string{abi.EveryTool}, KV: host.KV{Mode: abi.StoreWrite}}}
	cfg.Tools = append(l.tools(), slowTool)
	return openFolder(t, cfg, fstest.MapFS{"between.wasm": {Data: js.Plugin([]byte(between))}})
}

// slowTool may be called again.
var slowTool = gotool.Tool{Name: "slow", Description: "Takes long.", Hints: abi.Hints{Readonly: true}, Handler: gotool.Handle(func(ctx context.Context, _ *gotool.Call, in struct {
	Seconds int `json:"seconds"`
}) (int, error) {
	select {
	case <-time.After(time.Duration(in.Seconds) * time.Second):
		return in.Seconds, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
})}

// TestMessagesBetweenStates: messages that a run has taken since its last state are not
// lost with its host, whatever the hints of its tool are.
func TestMessagesBetweenStates(t *testing.T) {
	for _, tool := range pairsOfHints {
		for _, save := range []bool{false, true} {
			for _, waited := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/save=%v/waited=%v", tool, save, waited), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						cfg := Config{Engine: newProcess()}
						s := openBetween(t, cfg, new(ledger))
						id := s.spawn(alice, tool, fmt.Sprintf(`{"do":"mail","save":%v}`, save))
						if waited {
							time.Sleep(time.Minute)
							require.Equal(t, wire.StatusWaiting, s.run(id).Status)
						}
						var sent []int
						for n := range 10 {
							s.agent(alice, MessageBackground, fmt.Sprintf(`{"task_id":%q,"message":%d}`, id, n))
							sent = append(sent, n)
							time.Sleep(10 * time.Millisecond)
						}
						require.Equal(t, wire.StatusRunning, s.run(id).Status)

						s = openBetween(t, restarted(cfg), new(ledger))
						time.Sleep(time.Second)
						s.agent(alice, MessageBackground, fmt.Sprintf(`{"task_id":%q,"message":"end"}`, id))
						run := s.settled(alice, id)
						require.Equal(t, wire.StatusSucceeded, wire.Status(run.Status), "%+v", run.Error)
						var seen []int
						require.NoError(t, json.Unmarshal(run.Result, &seen))
						require.Equal(t, sent, seen)
					})
				})
			}
		}
	}
}

// TestEventsBetweenStates: what else a run has done since its last state is in its
// checkpoint if its tool begins again, happens again, or ends the run.
func TestEventsBetweenStates(t *testing.T) {
	for _, c := range []struct {
		do      string
		after   time.Duration // what it does
		results []string      // for the pairs of hints; empty: the run is orphaned
		writes  []string
	}{
		{"checkpoint", time.Minute, []string{`["nothing",2]`, `["newer",2]`, `["newer",2]`, `["newer",2]`}, nil},
		{"write", time.Minute, []string{"", `1`}, nil},
		{"child", 0, []string{`["nothing","second is 2"]`, `["first is 1","second is 2"]`}, []string{"first", "second"}},
	} {
		for i, want := range c.results {
			t.Run(c.do+"/"+pairsOfHints[i], func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var l ledger
					cfg := Config{Engine: newProcess()}
					s := openBetween(t, cfg, &l)
					id := s.spawn(alice, pairsOfHints[i], fmt.Sprintf(`{"do":%q}`, c.do))
					time.Sleep(c.after + 500*time.Millisecond) // a second later there is a new state
					require.Equal(t, wire.StatusRunning, s.run(id).Status)

					s = openBetween(t, restarted(cfg), &l)
					run := s.settled(alice, id)
					require.Equal(t, want, string(run.Result), "%+v", run.Error)
					require.Equal(t, c.writes, l.all())
				})
			})
		}
	}
}

// TestAnswersBetweenStates: an answer is the answer to what was asked, also once the run
// has begun again from its checkpoint and asks the same of something else.
func TestAnswersBetweenStates(t *testing.T) {
	for _, tool := range pairsOfHints {
		t.Run(tool, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := Config{Engine: newProcess()}
				s := openBetween(t, cfg, new(ledger))
				var id string
				_, err := s.Service.Call(t.Context(), Request{
					Session: alice, Tool: tool, Args: json.RawMessage(`{"do":"answer"}`), AskLater: true, OnPark: func(run wire.Run) { id = run.TaskID },
					Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, ErrAskAgain },
				})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				s.answers(id, "one")
				time.Sleep(500 * time.Millisecond)
				s = openBetween(t, restarted(cfg), new(ledger))
				time.Sleep(2 * time.Minute)
				s.answers(id, "two")
				require.Equal(t, `["one","two"]`, string(s.settled(alice, id).Result))
			})
		})
	}
}

// TestAttemptsThatWait: an attempt that gets further than those before it, or waits longer,
// is not one of the three after which a run is not started again.
func TestAttemptsThatWait(t *testing.T) {
	const slow = `return await tools.slow({seconds: 90})`
	for name, c := range map[string]struct {
		code  string
		lives []int // seconds until the host goes down
		end   wire.Status
	}{
		"three times in a call": {slow, []int{5, 5, 5}, wire.StatusSucceeded},
		"no longer":             {slow, []int{5, 5, 5, 5}, wire.StatusFailed},
		"ever longer":           {slow, []int{3, 3, 5, 9, 9, 17, 40, 70}, wire.StatusSucceeded},
		"call after call":       {`for (let i = 0; i < 10; i++) await tools.slow({seconds: 4})`, []int{6, 6, 6, 6, 6, 6, 6}, wire.StatusSucceeded},
		"at once":               {slow, []int{0, 0, 0}, wire.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := Config{Engine: newProcess()}
				open := func() service {
					next := cfg
					next.Tools = []gotool.Tool{slowTool}
					return openScripts(t, next)
				}
				s := open()
				id := s.spawnScript(c.code)
				for _, seconds := range c.lives {
					time.Sleep(time.Duration(seconds)*time.Second + 100*time.Millisecond)
					cfg = restarted(cfg)
					s = open()
				}
				require.Equal(t, c.end, wire.Status(s.settled(alice, id).Status))
			})
		})
	}
}
