package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/plugins"
)

func (s service) reconfigure(change func(*Config)) plugins.Changes {
	s.t.Helper()
	c, err := s.Reconfigure(s.t.Context(), change)
	require.NoError(s.t, err)
	return c
}

// Everything that can change applies to the next call.
func TestReconfigure(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		before func(s service) // what holds before, and no longer after
		after  func(s service)
	}{
		"grants": {
			func(c *Config) { c.Grants = map[string]plugins.Grant{"sleeper": {Clock: true}} },
			func(s service) {
				_, err := s.Call(s.t.Context(), Request{Session: alice, Tool: "sleeper"})
				require.ErrorIs(s.t, err, host.ErrDenied)
			},
			func(s service) { s.stop(alice, s.spawn(alice, "sleeper", "{}"), "") },
		},
		"folders": {
			func(c *Config) {
				c.Folders = append(c.Folders[:1:1], plugins.Folder{Path: "more", FS: fstest.MapFS{"fails.wasm": fromZoo("fails")}})
			},
			func(s service) { require.NotContains(s.t, s.names(), "fails") },
			func(s service) { require.Contains(s.t, s.names(), "fails") },
		},
		"limits": {
			func(c *Config) { c.Limits.Timeout, c.Limits.Memory = 7*time.Second, 1<<20 },
			func(s service) { require.Equal(s.t, 120.0, s.UsualLimits().TimeoutSeconds) },
			func(s service) {
				require.Equal(s.t, 7.0, s.UsualLimits().TimeoutSeconds)
				require.Equal(s.t, int64(1<<20), s.UsualLimits().MemoryBytes)
			},
		},
		"maximums of runs": {
			func(c *Config) { c.MaxLimits.Background = 3 * time.Hour },
			func(s service) {
				_, err := s.Session(alice).Spawn(s.t.Context(), SpawnRequest{Tool: "echo", Timeout: 2 * time.Hour})
				require.ErrorIs(s.t, err, background.ErrInvalid)
			},
			func(s service) {
				_, err := s.Session(alice).Spawn(s.t.Context(), SpawnRequest{Tool: "echo", Timeout: 2 * time.Hour})
				require.NoError(s.t, err)
			},
		},
		"the number of runs": {
			func(c *Config) { c.Runs.PerHost = 7 },
			func(s service) { require.Equal(s.t, background.DefaultPerHost, s.Stats().Runs.PerHost) },
			func(s service) { require.Equal(s.t, 7, s.Stats().Runs.PerHost) },
		},
		"how long runs are kept": {
			func(c *Config) { c.Runs.Retention = time.Hour },
			func(s service) { require.Equal(s.t, background.DefaultRetention, s.Retention()) },
			func(s service) { require.Equal(s.t, time.Hour, s.Retention()) },
		},
		"parking": {
			func(c *Config) { c.Park = ParkAll },
			func(s service) { require.False(s.t, s.define("plain").MayPark && s.parksAll()) },
			func(s service) { require.True(s.t, s.parksAll()) },
		},
		"listing": {
			func(c *Config) { c.Listing = map[string]Listing{"plain": ListBySearch} },
			func(s service) { require.Contains(s.t, s.names(), "plain") },
			func(s service) { require.NotContains(s.t, s.names(), "plain") },
		},
		"approvals": {
			func(c *Config) { c.Approvals.Tools = map[string]Decision{"plain": DecideDeny} },
			func(s service) { s.call(alice, "plain", "{}") },
			func(s service) {
				_, err := s.Call(s.t.Context(), Request{Session: alice, Tool: "plain"})
				require.ErrorIs(s.t, err, ErrApproval)
			},
		},
		"who approves": {
			func(c *Config) { c.Approve = func(context.Context, Approval) error { return nil } },
			func(s service) {
				_, err := s.Call(s.t.Context(), Request{Session: alice, Tool: "dangerous"})
				require.ErrorIs(s.t, err, ErrApproval)
			},
			func(s service) { s.call(alice, "dangerous", "{}") },
		},
		"asking for approval": {
			func(c *Config) { c.Approvals.Ask, c.Approvals.Wait = true, time.Hour },
			func(s service) { require.False(s.t, s.Approvals().Asks()) },
			func(s service) {
				r := s.call(alice, "dangerous", "{}")
				require.Contains(s.t, string(r.Value), "task_id")
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				waiting, err := s.Approvals().List(s.t.Context(), "", 0)
				require.NoError(s.t, err)
				require.Empty(s.t, waiting.Approvals, "the wait has an end")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				files := fstest.MapFS{}
				for _, name := range []string{"plain", "echo", "sleeper", "dangerous"} {
					files[name+".wasm"] = fromZoo(name)
				}
				s := openFolder(t, Config{}, files)
				changed := s.ToolsChanged(t.Context())
				test.before(s)
				s.reconfigure(test.change)
				test.after(s)
				<-changed
			})
		})
	}
}

// define is the definition of a tool.
func (s service) define(name string) Definition {
	s.t.Helper()
	tool, err := s.catalog.Lookup(name)
	require.NoError(s.t, err)
	return s.catalog.Definition(tool)
}

// parksAll reports whether a call without hints is parked after the usual time.
func (s service) parksAll() bool {
	tool, err := s.catalog.Lookup("plain")
	require.NoError(s.t, err)
	return tool.Backgrounds()
}

// What has begun keeps what it began with.
func TestReconfigureLeavesWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := map[string]plugins.Grant{"chatty": {Clock: true}}
		s := openFolder(t, Config{Grants: clock, Limits: Limits{Timeout: time.Minute}}, fstest.MapFS{"chatty.wasm": fromZoo("chatty")})
		answered := make(chan abi.Result)
		go func() { answered <- s.call(alice, "chatty", "{}") }()
		id := s.spawn(alice, "chatty", "{}")
		synctest.Wait()

		s.reconfigure(func(c *Config) {
			c.Grants, c.Limits.Timeout, c.MaxLimits.Background = nil, time.Second, time.Second
			c.Park = ParkNever
			c.Approvals.Tools = map[string]Decision{"*": DecideDeny}
		})
		_, err := s.Call(t.Context(), Request{Session: alice, Tool: "chatty"})
		require.ErrorIs(t, err, host.ErrDenied)
		require.Equal(t, abi.Success, (<-answered).Kind, "20 seconds, with the clock")
		require.Equal(t, "succeeded", string(s.settled(alice, id).Status))
	})
}

// A configuration that is refused changes nothing.
func TestReconfigureRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files := fstest.MapFS{"plain.wasm": fromZoo("plain"), "sleeper.wasm": fromZoo("sleeper")}
		s := openFolder(t, Config{DataDir: ""}, files)
		changed := s.ToolsChanged(t.Context())
		for field, change := range map[string]func(*Config){
			"DataDir":              func(c *Config) { c.DataDir = "/elsewhere" },
			"Host.Calls":           func(c *Config) { c.Host.Calls = 3 },
			"Runs.LeaseTTL":        func(c *Config) { c.Runs.LeaseTTL = time.Hour },
			"OnReload":             func(c *Config) { c.OnReload = func(plugins.Changes) {} },
			"ParkAfter":            func(c *Config) { c.ParkAfter = 100 * time.Hour },
			"Approvals.Tools.[":    func(c *Config) { c.Approvals.Tools = map[string]Decision{"[": DecideAllow} },
			"Listing.plain":        func(c *Config) { c.Listing = map[string]Listing{"plain": "somehow"} },
			"PerSession":           func(c *Config) { c.Runs.PerSession = -1 },
			"Approvals.Wait":       func(c *Config) { c.Approvals.Wait = -1 },
			"Approvals.Tools.echo": func(c *Config) { c.Approvals.Tools = map[string]Decision{"echo": "perhaps"} },
		} {
			_, err := s.Reconfigure(t.Context(), func(c *Config) {
				c.Grants, c.Limits.Timeout = map[string]plugins.Grant{"sleeper": {Clock: true}}, time.Second
				change(c)
			})
			var wrong *background.FieldError
			require.ErrorAs(t, err, &wrong, field)
			require.Equal(t, field, wrong.Field)
		}

		canceled, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		_, err := s.Reconfigure(canceled, func(c *Config) { c.Limits.Timeout, c.Runs.PerHost = time.Second, 7 })
		require.ErrorIs(t, err, gone)
		require.Equal(t, background.DefaultPerHost, s.Stats().Runs.PerHost)
		require.Equal(t, 120.0, s.UsualLimits().TimeoutSeconds)
		require.Equal(t, []string{"plain"}, s.names())
		synctest.Wait()
		require.Empty(t, changed)
		require.NoError(t, s.Close(done()))
		_, err = s.Reconfigure(t.Context(), func(*Config) {})
		require.ErrorIs(t, err, host.ErrClosed)
	})
}

// Watching can be switched on and off.
func TestReconfigureWatch(t *testing.T) {
	s := openFolder(t, Config{}, fstest.MapFS{})
	for range 3 {
		s.reconfigure(func(c *Config) { c.Watch = true })
		s.reconfigure(func(c *Config) { c.Watch = true })
		s.reconfigure(func(c *Config) { c.Watch = false })
	}
}

// A call sees either all of the old configuration or all of the new one: here the clock is
// granted if and only if the tool must not be called without approval.
func TestReconfigureAtOnce(t *testing.T) {
	m := plugintest.Manifest("timed")
	m.Tools[0].Hints.Readonly = true
	s := openFolder(t, Config{}, fstest.MapFS{"timed.wasm": {Data: plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Echo()}.Wasm()}})
	granted := func(on bool) func(*Config) {
		return func(c *Config) {
			c.Grants, c.Approvals.Tools = nil, nil
			if on {
				c.Grants, c.Approvals.Tools = map[string]plugins.Grant{"timed": {Clock: true}}, map[string]Decision{"timed": DecideDeny}
			}
		}
	}

	var calling sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		calling.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				tool, err := s.catalog.Lookup("timed")
				if err != nil {
					t.Error(err)
				} else if decision, _ := rulesOf(tool).Policy.Rule(tool); (decision == DecideDeny) != tool.Plugin.Grant.Clock {
					t.Errorf("decision %v, with the clock %v", decision, tool.Plugin.Grant.Clock)
				}
				r, err := s.Call(context.Background(), Request{Session: alice, Tool: "timed", Args: json.RawMessage("{}")})
				if err != nil && !errors.Is(err, ErrApproval) || err == nil && r.Kind != abi.Success {
					t.Error(err, r)
				}
			}
		})
	}
	for i := range 100 {
		s.reconfigure(granted(i%2 == 0))
	}
	close(done)
	calling.Wait()
}
