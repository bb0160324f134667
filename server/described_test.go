package server

import (
	"context"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// A run of a schedule that an earlier process left waits until its plugin has been asked
// what it is.
func TestRunWaitsForDescribe(t *testing.T) {
	m := plugintest.Manifest("bare")
	m.Tools[0].Hints.SupportsBackground = true
	files := fstest.MapFS{
		"a.wasm": {Data: plugintest.Plugin{Describe: plugintest.Do().Spin()}.Wasm()}, // asked first
		"bare.wasm": {Data: plugintest.Plugin{
			Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(m))),
			Invoke:   plugintest.Do().Echo(),
		}.Wasm()},
	}

	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		before := openFolder(t, Config{DataDir: dir}, files)
		made, err := before.Session(alice).Schedules().New(t.Context(), ScheduleRequest{SpawnRequest: SpawnRequest{Tool: "bare"}, Cron: "0 0 1 1 *"})
		require.NoError(t, err)
		require.NoError(t, before.Close(done()))

		s := openFolder(t, Config{DataDir: dir, DescribeLater: true}, files)
		run, err := s.AllSessions().Schedules().Fire(t.Context(), made.ScheduleID, "operator")
		require.NoError(t, err)
		synctest.Wait()
		ended, err := s.AllSessions().WholeRun(t.Context(), run.TaskID)
		require.NoError(t, err)
		require.Equal(t, "succeeded", string(ended.Status))
	})
}

// So does a call, and a spawn, right after the start.
func TestCallsWaitForDescribe(t *testing.T) {
	m := plugintest.Manifest("bare")
	m.Tools[0].Hints.SupportsBackground = true
	files := fstest.MapFS{
		"a.wasm":    {Data: plugintest.Plugin{Describe: plugintest.Do().Spin()}.Wasm()}, // asked first
		"bare.wasm": {Data: plugintest.Plugin{Describe: plugintest.Do().Say(abi.StreamManifest, string(plugintest.JSON(m))), Invoke: plugintest.Do().Echo()}.Wasm()},
	}
	for name, begin := range map[string]func(ctx context.Context, s service) error{
		"a call": func(ctx context.Context, s service) error {
			_, err := s.Call(ctx, Request{Session: alice, Tool: "bare"})
			return err
		},
		"a spawn": func(ctx context.Context, s service) error {
			_, err := s.Session(alice).Spawn(ctx, SpawnRequest{Tool: "bare"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := openFolder(t, Config{DescribeLater: true}, files)
				require.NoError(t, begin(t.Context(), s))
			})
		})
	}
}
