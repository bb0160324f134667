package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/testlog"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// workers are the workers of an engine, which may be away.
type workers struct {
	mu  sync.Mutex
	all []engine.WorkerState
	err error
}

func (w *workers) Workers(context.Context) ([]engine.WorkerState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, w.err
}

// change changes them while they are watched.
func (w *workers) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
}

// host adds a live host with a build of each plugin, such as "exec 1.0.0 abc".
func (w *workers) host(name string, builds ...string) *Cluster {
	c := New(Config{Process: "process " + name, Name: name, Version: "v1.2.3", Workers: w})
	var plugins []wire.HostPlugin
	for _, b := range builds {
		part := strings.Fields(b)
		plugins = append(plugins, wire.HostPlugin{Name: part[0], Version: part[1], Digest: part[2]})
	}
	w.all = append(w.all, engine.WorkerState{ID: "id " + name, Live: true, Running: 1, Claimed: 2, Offer: engine.Offer{Places: 3, About: c.About(plugins)}})
	return c
}

func TestHosts(t *testing.T) {
	w := &workers{}
	w.host("a", "one 1.0.0 aa")
	b := w.host("b", "two 1.0.0 bb", "one 1.0.0 aa")
	w.all[0].Live = false
	w.all = append(w.all, engine.WorkerState{ID: "other", Live: true, Offer: engine.Offer{About: json.RawMessage(`["another program"]`)}})

	hosts, err := b.Hosts(t.Context())
	require.NoError(t, err)
	one, two := wire.HostPlugin{Name: "one", Version: "1.0.0", Digest: "aa"}, wire.HostPlugin{Name: "two", Version: "1.0.0", Digest: "bb"}
	require.Equal(t, []wire.Host{
		{HostID: "id a", Name: "a", Version: "v1.2.3", State: wire.HostLost, Running: 1, Claimed: 2, PerHost: 3, Plugins: []wire.HostPlugin{one}},
		{HostID: "id b", Name: "b", Version: "v1.2.3", State: wire.HostLive, Self: true, Running: 1, Claimed: 2, PerHost: 3, Plugins: []wire.HostPlugin{one, two}},
		{HostID: "other", State: wire.HostLive},
	}, hosts.Hosts)

	w.err = errors.New("the database is away")
	_, err = b.Hosts(t.Context())
	require.ErrorIs(t, err, w.err)
}

// TestAbout: a host without plugins has an empty list, and a name.
func TestAbout(t *testing.T) {
	var d map[string]any
	require.NoError(t, json.Unmarshal(New(Config{Process: "p"}).About(nil), &d))
	require.NotEmpty(t, d["name"])
	delete(d, "name")
	require.Equal(t, map[string]any{"process": "p", "plugins": []any{}}, d)
}

func TestDifferences(t *testing.T) {
	build := func(version, digest string, hosts ...string) wire.PluginBuild {
		return wire.PluginBuild{Version: version, Digest: digest, Hosts: hosts}
	}
	for name, c := range map[string]struct {
		hosts map[string][]string
		want  []wire.HostDifference
	}{
		"none":       {map[string][]string{"a": {"one 1 aa", "two 1 bb"}, "b": {"two 1 bb", "one 1 aa"}}, []wire.HostDifference{}},
		"no plugins": {map[string][]string{"a": nil, "b": nil}, []wire.HostDifference{}},
		"a digest": {map[string][]string{"a": {"one 1 ab"}, "b": {"one 1 aa"}, "c": {"one 1 ab"}},
			[]wire.HostDifference{{Plugin: "one", Builds: []wire.PluginBuild{build("1", "ab", "a", "c"), build("1", "aa", "b")}}}},
		"a version": {map[string][]string{"a": {"one 2 aa"}, "b": {"one 1 aa"}},
			[]wire.HostDifference{{Plugin: "one", Builds: []wire.PluginBuild{build("1", "aa", "b"), build("2", "aa", "a")}}}},
		"a missing one": {map[string][]string{"a": {"two 1 bb", "one 1 aa"}, "b": nil, "c": {"one 1 aa"}},
			[]wire.HostDifference{
				{Plugin: "one", Builds: []wire.PluginBuild{build("1", "aa", "a", "c")}, Missing: []string{"b"}},
				{Plugin: "two", Builds: []wire.PluginBuild{build("1", "bb", "a")}, Missing: []string{"b", "c"}},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &workers{}
			var own *Cluster
			for _, host := range []string{"a", "b", "c"} {
				if builds, ok := c.hosts[host]; ok {
					own = w.host(host, builds...)
				}
			}
			w.host("lost", "one 9 ff")
			w.all[len(w.all)-1].Live = false
			hosts, err := own.Hosts(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, hosts.Differences)
		})
	}
}

// TestWatch: plugins that have differed for ten minutes are a problem until they do not
// differ any more, and are logged once.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, logs := &workers{}, &testlog.Buffer{}
		w.host("a", "exec 1.0.0 0123456789abcdef")
		w.host("b", "exec 1.0.0 fedcba9876543210", "other 1.0.0 aa")
		c := New(Config{Name: "c", SharedEngine: true, Workers: w, Logger: slog.New(slog.NewTextHandler(logs, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Watch(ctx) }()
		after := func(d time.Duration) []wire.FileProblem {
			time.Sleep(d)
			synctest.Wait()
			return c.Problems()
		}

		require.Empty(t, after(graceTime-time.Second), "hosts are updated one after the other")
		require.Empty(t, c.Warnings())
		want := []wire.FileProblem{
			{File: "exec", Error: "differs between hosts: 1.0.0 0123456789ab on a; 1.0.0 fedcba987654 on b"},
			{File: "other", Error: "differs between hosts: 1.0.0 aa on b; missing on a"},
		}
		require.Equal(t, want, after(time.Second))
		require.Equal(t, []string{"2 plugins differ between hosts: see toolhost hosts"}, c.Warnings())
		w.change(func() { w.err = errors.New("the database is away") })
		require.Equal(t, want, after(2*graceTime))
		w.change(func() { w.err = nil })
		require.Equal(t, want, after(2*graceTime))
		require.Equal(t, 2, strings.Count(logs.String(), "plugins differ between hosts"))

		w.change(func() { w.all = w.all[:1:1] })
		require.Empty(t, after(compareEvery))
		require.Empty(t, c.Warnings())
		w.change(func() { w.host("b", "exec 2.0.0 fedcba9876543210") })
		require.Empty(t, after(graceTime-time.Second), "it differs anew")
		cancel()
		<-ended
	})
}

// TestWatchAlone: a host without others compares nothing.
func TestWatchAlone(t *testing.T) { New(Config{}).Watch(t.Context()) }
