package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest/js"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	mailFolder = "TOOLHOST_MAIL_FOLDER" // set: this process is a host
	mailLast   = "TOOLHOST_MAIL_LAST"   // set: it is not killed, and ends its runs
	mailRound  = 50                     // kills of one data folder
)

// killedMail is a plugin with a tool for each pair of hints. Its runs count the numbers that
// they are sent, which must have no gap, and do something else with each.
const killedMail = `
const { tool } = globalThis.toolhost;
export const plugin = { name: 'mail', description: 'For tests.', needs: { clock: true, ask: true, kv: 'write', tools: ['*'] } };

const settled = async (promise) => { try { return await promise } catch (e) { if (e.result || e.code === 'lost') return; throw e } };

async function run({ name, save, write, repeats }, call) {
  const at = save && await call.checkpoint.load() || { last: 0, after: 0, faults: [] };
  for (;;) {
    for (const m of await call.receive({ after: at.after, wait_ms: 3600e3 })) {
      at.after = m.id;
      if (m.message === 'end') return at;
      const n = m.message;
      if (n <= at.last) continue; // sent twice, or received again
      if (n !== at.last + 1) at.faults.push('after ' + at.last + ' came ' + n);
      at.last = n;
      if (n % 5 === 1 && write) await settled(call.tools.effect({ name, step: n }));
      if (n % 5 === 2 && await call.tools.look({ name, step: n }) !== n) at.faults.push('saw another than ' + n);
      if (n % 5 === 3 && await call.tools.again({ name, step: n }) !== 2 * n) at.faults.push('got another than ' + n);
      if (n % 5 === 4 && write && repeats) await call.kv.set(name, n);
      if (n % 20 === 0) await call.sleep(300);
      if (n % 50 === 25) {
        const { n: said } = (await call.ask({ n: { message: String(n), schema: { type: 'object', properties: { n: { type: 'integer' } } } } })).n.content;
        if (said !== n) at.faults.push('the answer to ' + n + ' is ' + said);
      }
      if (save) await call.checkpoint.save(at);
    }
  }
}

const own = { supportsBackground: true, messages: true, input: { name: 'string', save: 'boolean', write: 'boolean', repeats: 'boolean' } };
export const neither = tool({ description: 'Neither.', ...own }, run);
export const idempotent = tool({ description: 'Idempotent.', idempotent: true, ...own }, run);
export const readonly = tool({ description: 'Readonly.', readonly: true, ...own }, run);
export const both = tool({ description: 'Both.', readonly: true, idempotent: true, ...own }, run);
`

// TestKilledMessages kills hosts whose runs take messages, wait, save checkpoints, ask and
// call tools. Each message that was acknowledged is received, whatever the hints of the tool
// are, each answer is that to its question, and each call to a tool that must not be called
// twice is made once. TOOLHOST_CRASH_KILLS says how often.
func TestKilledMessages(t *testing.T) {
	fulltest.Only(t, "kills processes")
	kills := 8
	if text := os.Getenv("TOOLHOST_CRASH_KILLS"); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var all mailFigures
	for all.kills < kills {
		killMail(t, min(kills, all.kills+mailRound), &all)
	}
	t.Logf("%d kills, %d attempts of %d runs; %d messages, %d effects", all.kills, all.attempts, all.runs, all.messages, all.effects)
}

type mailFigures struct{ kills, attempts, runs, messages, effects int }

// killMail kills the hosts of a data folder, lets the last one end its runs, and checks them.
func killMail(t *testing.T, kills int, all *mailFigures) {
	folder := t.TempDir()
	for ; all.kills < kills; all.kills++ {
		mailHost(t, folder, false)
	}
	mailHost(t, folder, true)

	for call, n := range countLines(t, filepath.Join(folder, "effects")) {
		require.Equal(t, 1, n, "done twice: %s", call)
		all.effects++
	}
	data, err := os.ReadFile(filepath.Join(folder, "ends"))
	require.NoError(t, err)
	var runs map[string]wire.Run
	require.NoError(t, json.Unmarshal(data, &runs))
	acknowledged := lastAcknowledged(t, folder)
	require.Len(t, runs, 2*len(pairsOfHints))
	for name, run := range runs {
		require.Equal(t, wire.StatusSucceeded, run.Status, "%s, attempt %d: %+v", name, run.Attempt, run.Error)
		var got struct {
			Last   int      `json:"last"`
			Faults []string `json:"faults"`
		}
		require.NoError(t, json.Unmarshal(run.Result, &got))
		require.Empty(t, got.Faults, name)
		require.GreaterOrEqual(t, got.Last, acknowledged[name], name)
		all.messages += got.Last
		all.attempts += run.Attempt
		all.runs++
	}
}

// mailHost starts a host, and kills it unless it is the last one.
func mailHost(t *testing.T, folder string, last bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMessagesHost$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), mailFolder+"="+folder)
	if last {
		cmd.Env = append(cmd.Env, mailLast+"=1")
	}
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch {
		case lines.Text() != "ready":
			fmt.Fprintln(t.Output(), lines.Text())
		case !last:
			time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
			_ = cmd.Process.Kill()
			killed = true
		}
	}
	require.Equal(t, last, cmd.Wait() == nil)
	require.Equal(t, !last, killed, "a host ended by itself")
}

// countLines returns how often a file has each line.
func countLines(t *testing.T, name string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := map[string]int{}
	for line := range strings.Lines(string(data)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}

// lastAcknowledged returns the last number of each run whose message was acknowledged.
func lastAcknowledged(t *testing.T, folder string) map[string]int {
	t.Helper()
	last := map[string]int{}
	for line := range countLines(t, filepath.Join(folder, "acknowledged")) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			last[name] = max(last[name], n)
		}
	}
	return last
}

// A mailer sends numbers to a run, and answers what it asks.
type mailer struct {
	service
	name, id     string
	sent         int
	acknowledged *os.File
}

// TestMessagesHost is the process that is killed.
func TestMessagesHost(t *testing.T) {
	folder := os.Getenv(mailFolder)
	if folder == "" {
		t.Skip("a host of TestKilledMessages")
	}
	appended := func(name string) *os.File {
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		return file
	}
	effects, acknowledged := appended("effects"), appended("acknowledged")
	s := openMail(t, folder, effects)
	last := lastAcknowledged(t, folder)
	var mailers []*mailer
	for _, tool := range []string{"mail_neither", "mail_idempotent", "mail_readonly", "mail_both"} {
		for _, save := range []bool{false, true} {
			name := fmt.Sprint(tool, "-", save)
			mailers = append(mailers, &mailer{s, name, s.parkMail(tool, name, save), last[name], acknowledged})
		}
	}
	fmt.Println("ready")

	lasting := 10 * time.Minute // until it is killed
	if os.Getenv(mailLast) != "" {
		lasting = 2 * time.Second
	}
	var sending sync.WaitGroup
	for _, m := range mailers {
		sending.Go(func() { m.send(lasting) })
	}
	sending.Wait()
	runs := map[string]wire.Run{}
	for _, m := range mailers {
		runs[m.name] = m.end()
	}
	data, err := json.Marshal(runs)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ends"), data, 0o600))
}

// openMail opens the service of a host.
func openMail(t *testing.T, folder string, effects *os.File) service {
	type step struct {
		Name string `json:"name"`
		Step int    `json:"step"`
	}
	cfg := Config{DataDir: filepath.Join(folder, "data"), CacheDir: plugintest.CacheDir(), Runs: RunsConfig{Attempts: 1000, PerSession: 1000, PerHost: 1000}}
	cfg.Limits.Background, cfg.Limits.Fuel = time.Hour, 1e12
	cfg.Grants = map[string]plugins.Grant{"mail": {Clock: true, Ask: true, Tools: []string{abi.EveryTool}, KV: host.KV{Mode: abi.StoreWrite}}}
	cfg.Tools = []gotool.Tool{
		{Name: "effect", Description: "Has an effect.", Handler: gotool.Handle(func(_ context.Context, c *gotool.Call, in step) (string, error) {
			_, err := fmt.Fprintln(effects, c.ID(), in.Name, in.Step)
			return "done", err
		})},
		{Name: "look", Description: "Looks.", Hints: abi.Hints{Readonly: true}, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in step) (int, error) { return in.Step, nil })},
		{Name: "again", Description: "May be called again.", Hints: abi.Hints{Idempotent: true, Readonly: true}, Handler: gotool.Handle(func(_ context.Context, _ *gotool.Call, in step) (int, error) { return 2 * in.Step, nil })},
	}
	return openFolder(t, cfg, fstest.MapFS{"mail.wasm": {Data: js.Plugin([]byte(killedMail))}})
}

// parkMail starts a run that may ask, or finds it again.
func (s service) parkMail(tool, name string, save bool) (id string) {
	s.t.Helper()
	readonly := strings.HasSuffix(tool, "readonly") || strings.HasSuffix(tool, "both")
	args := fmt.Sprintf(`{"name":%q,"save":%v,"write":%v,"repeats":%v}`, name, save, !readonly, tool != "mail_neither")
	_, err := s.Service.Call(s.t.Context(), Request{
		Session: alice, Tool: tool, Args: json.RawMessage(args), Key: name, ParkAfter: time.Millisecond, AskLater: true,
		OnPark: func(run wire.Run) { id = run.TaskID }, Ask: func(context.Context, abi.Questions) (abi.Answers, error) { return abi.Answers{}, ErrAskAgain },
	})
	if errors.Is(err, ErrAskAgain) { // an earlier host has begun it, and it asks already
		run, _, found := s.runs.WithKey(s.t.Context(), alice, background.SpawnRequest{Tool: tool, Args: json.RawMessage(args), IdempotencyKey: name})
		id, err = run.ID, found
	}
	require.NoError(s.t, err)
	require.NotEmpty(s.t, id)
	for { // a call that was just parked is not made again, unless its tool may be repeated
		run, err := s.runs.Get(s.t.Context(), alice, id)
		require.NoError(s.t, err)
		if run.Attempt > 1 || run.StateSize > 0 {
			return id
		}
		time.Sleep(time.Millisecond)
	}
}

// send sends numbers for so long, and writes down what was acknowledged.
func (m *mailer) send(lasting time.Duration) {
	for began := time.Now(); time.Since(began) < lasting; {
		m.answer()
		if _, err := m.Session(alice).Send(m.t.Context(), m.id, "", json.RawMessage(strconv.Itoa(m.sent+1))); err == nil {
			m.sent++
			fmt.Fprintln(m.acknowledged, m.name, m.sent)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
}

// answer answers what the run asks.
func (m *mailer) answer() {
	open, err := m.Session(alice).Questions(m.t.Context(), m.id)
	for key, q := range open {
		if err == nil {
			err = m.Session(alice).Answer(m.t.Context(), m.id, map[string]abi.Answer{key: {Action: abi.AnswerAccept, Content: json.RawMessage(`{"n":` + q.Message + `}`)}})
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		m.t.Error(err)
	}
}

// end ends the run.
func (m *mailer) end() wire.Run {
	m.t.Helper()
	for sent := false; ; {
		if !sent {
			_, err := m.Session(alice).Send(m.t.Context(), m.id, "", json.RawMessage(`"end"`))
			sent = err == nil
		}
		m.answer()
		found, err := m.Session(alice).Check(m.t.Context(), CheckRequest{IDs: []string{m.id}})
		require.NoError(m.t, err)
		if found.Runs[0].Done {
			return found.Runs[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
}
