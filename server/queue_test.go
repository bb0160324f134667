package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// napTime is how long a call of a napper takes.
const napTime = 20 * time.Second

// nappers are two plugins that sleep, one of which wants no company.
func nappers() (fstest.MapFS, map[string]plugins.Grant) {
	files, grants := fstest.MapFS{}, map[string]plugins.Grant{}
	for name, concurrency := range map[string]abi.Concurrency{"napper": abi.Parallel, "loner": abi.Serial} {
		m := plugintest.Manifest(name)
		m.Tools[0].Hints.SupportsBackground = true
		m.Tools[0].Hints.Concurrency = concurrency
		m.Needs.Clock = true
		p := plugintest.Plugin{Manifest: m, Invoke: plugintest.Do().Sleep(int(napTime.Seconds()))}
		files[name+".wasm"], grants[name] = &fstest.MapFile{Data: p.Wasm()}, plugins.Grant{Clock: true}
	}
	return files, grants
}

// timed makes calls at once and returns how long each took.
func timed(s service, requests ...Request) (took []time.Duration, results []abi.Result) {
	took, results = make([]time.Duration, len(requests)), make([]abi.Result, len(requests))
	var wg sync.WaitGroup
	for i, req := range requests {
		wg.Go(func() {
			begin := time.Now()
			results[i], _ = s.Call(context.Background(), req)
			took[i] = time.Since(begin)
		})
		synctest.Wait() // they come in this order
	}
	wg.Wait()
	return took, results
}

// Direct calls beyond the limit wait for one of the places, with their time
// running, here in the order they came because nobody has one yet; their errors name the limit. Background runs have their own.
func TestTotalCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files, grants := nappers()
		s := openFolder(t, Config{Grants: grants, Host: host.Config{TotalCalls: 1}}, files)
		id := s.spawn(alice, "napper", `{}`)
		took, results := timed(s,
			Request{Session: alice, Tool: "napper"}, Request{Session: "bob", Tool: "napper"},
			Request{Session: alice, Tool: "loner", Limits: Limits{Timeout: napTime / 2}}, Request{Session: "bob", Tool: "loner"})
		require.Equal(t, []time.Duration{napTime, 2 * napTime, napTime / 2, 3 * napTime}, took)
		require.Equal(t, abi.LimitTime, results[2].Limit)
		require.Contains(t, results[2].Error, "time limit of 10s reached while the call waited: at most 1 calls run at a time on this host: retry")
		run := s.check(alice, id, "")
		require.Equal(t, "succeeded", run["status"])
		require.Equal(t, napTime.Seconds(), run["elapsed_seconds"])
	})
}

// One user has hundreds of long calls, in several sessions. Others find a place,
// or have the next one, and the error says that it was its share.
func TestGreedyUser(t *testing.T) {
	for name, c := range map[string]struct {
		shared bool
		waits  time.Duration // others, at most
		told   string
	}{
		"shared":     {true, 0, "at most 6 calls of one client run at a time on this host: retry"},
		"not shared": {false, napTime, "at most 8 calls run at a time on this host: retry"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				files, grants := nappers()
				s := openFolder(t, Config{Grants: grants, Host: host.Config{TotalCalls: 8, Calls: 1000, Shared: c.shared}}, files)
				var requests []Request
				for i := range 500 {
					// The last to arrive give up first: no call that holds a slot frees it for them in time.
					timeout := 2*napTime + time.Second + time.Duration(500-i)*time.Millisecond
					requests = append(requests, Request{Session: fmt.Sprint("ana/", i%5), Tool: "napper", Limits: Limits{Timeout: timeout}})
				}
				greedy := len(requests)
				for _, session := range []string{"bo/default", "cy/default"} {
					requests = append(requests, Request{Session: session, Tool: "napper"})
				}
				took, results := timed(s, requests...)
				require.Equal(t, []time.Duration{napTime + c.waits, napTime + c.waits}, took[greedy:])
				ended, waited := 0, 0
				for _, r := range results[:greedy] {
					if r.Kind == abi.Success {
						ended++
						continue
					}
					require.Equal(t, abi.LimitTime, r.Limit)
					if strings.Contains(r.Error, c.told) {
						waited++
					}
				}
				require.Greater(t, waited, greedy/2, "a call without a slot says what it waited for")
				if c.shared {
					require.Equal(t, 2*6, ended)
				} else {
					require.Equal(t, 2*8-2, ended, "no place is kept for anybody")
				}
			})
		})
	}
}

// A client that is alone on a host for one has all places there are.
func TestOneSessionHasAllPlaces(t *testing.T) {
	for _, session := range []string{"", alice} {
		bubble(t, func(t *testing.T) {
			files, grants := nappers()
			s := openFolder(t, Config{Grants: grants, Host: host.Config{TotalCalls: 8}}, files)
			took, _ := timed(s, slices.Repeat([]Request{{Session: session, Tool: "napper"}}, 8)...)
			require.Equal(t, slices.Repeat([]time.Duration{napTime}, 8), took)
		})
	}
}

// A tool that is not to overlap takes turns within a session, whether it is
// called or runs in the background, and the limit of its turn is named.
func TestSerialTool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		files, grants := nappers()
		s := openFolder(t, Config{Grants: grants}, files)
		first := s.spawn(alice, "loner", `{}`)
		synctest.Wait()
		second := s.spawn(alice, "loner", `{}`)
		synctest.Wait()
		took, results := timed(s, Request{Session: alice, Tool: "loner"}, Request{Session: "bob", Tool: "loner"},
			Request{Session: alice, Tool: "napper"}, Request{Session: alice, Tool: "loner", Limits: Limits{Timeout: napTime}})
		require.Equal(t, []time.Duration{3 * napTime, napTime, napTime, napTime}, took)
		require.Contains(t, results[3].Error, "the plugin runs one call of a session at a time")
		require.Equal(t, abi.LimitTime, results[3].Limit)
		require.Equal(t, napTime.Seconds(), s.check(alice, first, "")["elapsed_seconds"])
		require.Equal(t, 2*napTime.Seconds(), s.check(alice, second, "")["elapsed_seconds"])
	})
}
