package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/server/httpapi"
)

// load is one run of TestLoad.
type load struct {
	t        *testing.T
	whole    bool          // it takes as long as it was asked to, and measures
	clients  int           // at a time
	each     int           // operations of each; 0 is as many as there is time for
	duration time.Duration // of the mix
	pause    time.Duration // of each measurement of an idle server
	seed     uint64
	zoo      string // folder
	server   *loadProcess
	asker    *loadClient
	figures  *figures
	before   memory
}

// What the environment asks for. It is taken out of it: the command refuses
// variables it does not know.
var (
	loadFor     = taken("TOOLHOST_LOAD")
	loadClients = taken("TOOLHOST_LOAD_CLIENTS")
	loadJSON    = taken("TOOLHOST_LOAD_JSON")
	loadProfile = taken("TOOLHOST_LOAD_PROFILE")
)

func taken(name string) string {
	value := os.Getenv(name)
	_ = os.Unsetenv(name)
	return value
}

// TestLoad has many clients do everything there is to do with a server, at
// once: a process of its own, at an address of this machine. Nothing may fail
// but what a limit refuses, by name; every known run has to end as it
// was asked to; and afterwards nothing of the clients may be left.
//
// It does a little of that in a few seconds. With TOOLHOST_LOAD=1m it takes so
// long with 500 clients (TOOLHOST_LOAD_CLIENTS), and measures: what clients cost
// that wait, a call over HTTP next to the same call in process, and a call over
// HTTP next to a bare server of net/http that reads and writes the same bytes. With
// TOOLHOST_LOAD_JSON=FILE the figures are appended to a file as lines of JSON,
// with TOOLHOST_LOAD_PROFILE=FILE the server is profiled in the mix: FILE has
// where its time went, FILE.allocs what it allocated, FILE.goroutines which goroutines wait.
//
//	TOOLHOST_TEST=full TOOLHOST_LOAD=1m go test ./cmd/toolhost -run '^TestLoad$' -count=3 -v -timeout=30m
func TestLoad(t *testing.T) {
	fulltest.Only(t, "puts a server under load")
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be asked to end there")
	}
	l := newLoad(t)
	warm := time.Second
	if l.whole {
		warm = 5 * time.Second
	}
	l.zoo = loadZoo(t)
	l.server = startLoaded(t, l.zoo, loadConfiguration(warm))
	l.asker = newLoadClient(l.server.base, 999, l.seed)
	l.start()
	idle := l.idle()
	l.waiters()
	l.sizes()
	l.compare()
	l.mix()
	l.settle(idle)
	l.asker.http.CloseIdleConnections()
	said := len(l.server.said.String())
	require.Empty(t, l.server.end(), "lines of level error in the server's log")
	l.figures.add("log", float64(said)/(1<<10), "KiB")
	if l.whole {
		l.figures.report(loadJSON)
	}
}

func newLoad(t *testing.T) *load {
	l := &load{t: t, clients: 8, each: 30, seed: 1, figures: &figures{t: t}}
	if loadFor == "" {
		return l
	}
	var err error
	l.duration, err = time.ParseDuration(loadFor)
	require.NoError(t, err)
	l.whole, l.each, l.clients = true, 0, 500
	l.pause = min(10*time.Second, max(l.duration/4, time.Second))
	if loadClients != "" {
		l.clients, err = strconv.Atoi(loadClients)
		require.NoError(t, err)
	}
	average, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%d clients for %s, on %d processors, load before %s", l.clients, l.duration, runtime.NumCPU(), average)
	return l
}

// start has each tool called once, so that all are compiled.
func (l *load) start() {
	ctx := l.t.Context()
	require.NoError(l.t, l.asker.callSmall(ctx))
	require.NoError(l.t, l.asker.callFails(ctx))
	require.NoError(l.t, l.asker.callSpins(ctx))
	for _, tool := range []string{loadQuick, loadWorks, loadTardy} {
		require.NoError(l.t, l.asker.spawn(ctx, tool))
	}
	require.NoError(l.t, l.asker.spawnAndStop(ctx))
	require.NoError(l.t, l.asker.finish(ctx))
}

// rest is what a server has when nobody wants anything of it.
type rest struct {
	goroutines, files int
	memory            int64 // that counts against the host's
}

// idle waits until the server has nothing to do and keeps nothing warm.
func (l *load) idle() rest {
	stats := l.until("idle", func(s httpapi.Stats) bool {
		return s.OpenAnswers == 0 && s.Runs.Active == 0 && s.Runs.Queued == 0 && s.Runs.Unstored == 0 &&
			s.Host.Running == 0 && s.Host.Waiting == 0 && s.Host.Instances == 0 &&
			s.Host.MemoryOf.Buffers == 0 && s.Host.MemoryOf.Stacks == 0
	})
	r := rest{goroutines: l.server.goroutines(), memory: stats.Host.Memory}
	if hasProc {
		r.files = l.server.files()
	}
	return r
}

// mix has all clients do what they do, and then account for it.
func (l *load) mix() {
	clients := make([]*loadClient, l.clients)
	errs := make([]error, l.clients)
	last, cancel := context.WithTimeout(l.t.Context(), l.duration+15*time.Minute) // only a broken server gets there
	defer cancel()
	mixing := last
	if l.duration > 0 {
		var stop func()
		mixing, stop = context.WithTimeout(last, l.duration)
		defer stop()
	}
	peak, sampled := l.sample(mixing)
	began := time.Now()
	var all, mixed sync.WaitGroup
	mixed.Add(l.clients)
	for n := range l.clients {
		c := newLoadClient(l.server.base, n, l.seed)
		clients[n] = c
		all.Go(func() {
			defer c.http.CloseIdleConnections()
			errs[n] = c.live(mixing, last, l.each, n%4 == 0, mixed.Done)
		})
	}
	mixed.Wait()
	took := time.Since(began)
	all.Wait()
	sampled()
	total := newLatencies()
	for _, c := range clients {
		total.merge(c.figures)
	}
	require.NoError(l.t, errors.Join(errs...))
	require.Positive(l.t, total.count())
	l.figures.latencies(total)
	if l.whole {
		l.figures.add("answers", float64(total.count())/took.Seconds(), "/s")
		l.figures.add("resident, most in the mix", float64(*peak)/(1<<20), "MiB")
		require.Less(l.t, *peak, int64(3<<30), "bytes the server takes at most")
	}
}

// live is all a client does.
func (c *loadClient) live(mixing, last context.Context, n int, watches bool, mixed func()) (err error) {
	watching, leave := context.WithCancel(last)
	defer leave()
	var over <-chan error
	if watches {
		over, err = c.watch(watching)
	}
	if err == nil {
		err = c.mix(mixing, last, n)
	}
	mixed()
	if err == nil {
		err = c.finish(last)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.session, err)
	}
	if !watches {
		return nil
	}
	for c.unseen() != "" { // events arrive in their own time
		select {
		case err := <-over:
			return fmt.Errorf("%s: the events ended: %w", c.session, err)
		case <-last.Done():
			return fmt.Errorf("%s: no event told the end of %s", c.session, c.unseen())
		case <-time.After(10 * time.Millisecond):
		}
	}
	leave()
	return <-over
}

// sample looks at the memory of the server until ctx ends, and returns the most
// it had, once stop has returned.
func (l *load) sample(ctx context.Context) (peak *int64, stop func()) {
	peak = new(int64)
	if !l.whole || !hasProc {
		return peak, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	self := &loadProcess{t: l.t, cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	cpu, own, began := l.server.cpu(), self.cpu(), time.Now()
	sampling.Go(func() {
		for ctx.Err() == nil {
			now, _ := l.server.resident()
			*peak = max(*peak, now)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				share := func(d time.Duration) float64 { return 100 * d.Seconds() / time.Since(began).Seconds() }
				l.figures.add("processor, the mix", share(l.server.cpu()-cpu), "% of a core")
				l.figures.add("processor, the clients of the mix", share(self.cpu()-own), "% of a core")
			}
		}
	})
	if loadProfile != "" {
		sampling.Go(func() {
			of := map[string]string{
				"":        l.server.profile(fmt.Sprintf("profile?seconds=%d", max(1, int(l.duration.Seconds())-2))),
				".allocs": l.server.profile("allocs"), ".goroutines": l.server.profile("goroutine?debug=1"),
			}
			for suffix, data := range of {
				if err := os.WriteFile(loadProfile+suffix, []byte(data), 0o644); err != nil {
					l.t.Error(err)
				}
			}
		})
	}
	return peak, func() { cancel(); sampling.Wait() }
}

// settle waits until the server has nothing to do any more, and compares it with
// what it was before.
func (l *load) settle(before rest) {
	after := l.idle()
	require.LessOrEqual(l.t, after.memory, before.memory+1<<20, "bytes that count against the host's memory")
	// Some are of the pools of libraries, whose number does not grow with clients.
	if !assert.Eventually(l.t, func() bool { return l.server.goroutines() <= before.goroutines+20 }, 2*time.Minute, 50*time.Millisecond) {
		l.t.Fatalf("%d goroutines before, and after:\n%s", before.goroutines, l.server.profile("goroutine?debug=1"))
	}
	if !hasProc {
		return
	}
	require.Eventually(l.t, func() bool { return l.server.files() <= before.files+20 }, 2*time.Minute, 50*time.Millisecond,
		"%d files before, %d after", before.files, l.server.files())
	if l.whole {
		now, most := l.server.resident()
		kept, _ := l.server.heap()
		l.figures.add("resident, after all have left", float64(now)/(1<<20), "MiB")
		l.figures.add("resident, the most there was", float64(most)/(1<<20), "MiB")
		l.figures.add("heap, after all have left", float64(kept)/(1<<20), "MiB")
	}
}
