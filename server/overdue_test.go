package server

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// A call that reaches the default time limit continues, if its caller still waits. A
// limit that somebody chose for it ends it.
func TestOverdue(t *testing.T) {
	for name, test := range map[string]struct {
		tool   func(*gotool.Tool)
		config func(*Config)
		ask    func(*Request)
		parked bool
		after  time.Duration
	}{
		"default limit":             {parked: true, after: 2 * time.Minute},
		"parked sooner":             {config: func(c *Config) { c.ParkAfter = time.Minute }, parked: true, after: time.Minute},
		"limit of the operator":     {config: func(c *Config) { c.Limits.Timeout = time.Minute }, parked: true, after: time.Minute},
		"no limit":                  {config: func(c *Config) { c.Limits.Timeout = NoLimit }, parked: true, after: DefaultParkAfter},
		"limit of the caller":       {ask: func(r *Request) { r.Limits.Timeout = time.Minute }, after: time.Minute},
		"limit of the tool":         {tool: func(t *gotool.Tool) { t.Limits.TimeoutSeconds = 60 }, after: time.Minute},
		"never deferred":            {tool: func(t *gotool.Tool) { t.Deferrable = abi.DeferNever }, after: 2 * time.Minute},
		"no session":                {ask: func(r *Request) { r.Session = "" }, after: 2 * time.Minute},
		"only hinted tools park":    {config: func(c *Config) { c.Park = ParkHinted }, after: 2 * time.Minute},
		"never parked":              {config: func(c *Config) { c.Park = ParkNever }, after: 2 * time.Minute},
		"no limit, and none parked": {config: func(c *Config) { c.Park, c.Limits.Timeout = ParkNever, NoLimit }, after: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tool := handler("slow", func(ctx context.Context, _ *gotool.Call) error {
					select {
					case <-ctx.Done():
					case <-time.After(24 * time.Hour):
					}
					return ctx.Err()
				})
				tool.Hints.SupportsBackground = false
				cfg, req := Config{}, Request{Session: alice, Tool: "slow"}
				if test.tool != nil {
					test.tool(&tool)
				}
				if test.config != nil {
					test.config(&cfg)
				}
				if test.ask != nil {
					test.ask(&req)
				}
				cfg.Tools = []gotool.Tool{tool}
				s := openFolder(t, cfg, nil)
				require.Len(t, s.Definitions(alice), 1, "the agent's tools come with the first run")

				began := time.Now()
				r, err := s.Call(t.Context(), req)
				require.Equal(t, test.after, time.Since(began))
				if !test.parked {
					require.Equal(t, test.after == 24*time.Hour, err == nil)
					return
				}
				require.NoError(t, err)
				var parked struct {
					TaskID string `json:"task_id"`
				}
				require.NoError(t, json.Unmarshal(r.Value, &parked))
				require.Len(t, s.Definitions(alice), 3, "check and stop are there now")
				run, err := s.Session(alice).Run(t.Context(), parked.TaskID)
				require.NoError(t, err)
				require.Equal(t, wire.StatusRunning, run.Status)
				require.GreaterOrEqual(t, run.DeadlineSeconds, (test.after + ParkedTime).Seconds())
				require.Contains(t, s.refused(alice, SpawnBackground, `{"tool":"slow","args":{}}`), SpawnBackground, "it still cannot be spawned")
			})
		})
	}
}

// A caller that has left before the limit ends its call: nobody wants the result.
func TestOverdueCallerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tool := handler("slow", func(ctx context.Context, _ *gotool.Call) error { <-ctx.Done(); return ctx.Err() })
		tool.Hints.SupportsBackground = false
		s := openFolder(t, Config{Tools: []gotool.Tool{tool}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := s.Call(ctx, Request{Session: alice, Tool: "slow"})
		require.Error(t, err)
		require.NotEqual(t, abi.Success, r.Kind)
		runs, err := s.Session(alice).Runs(t.Context(), RunQuery{})
		require.NoError(t, err)
		require.Empty(t, runs)
	})
}

// A run without a limit is shown without a deadline.
func TestRunWithoutALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, Config{Limits: Limits{Background: NoLimit}}, "sleeper")
		run, err := s.Session(alice).Spawn(t.Context(), SpawnRequest{Tool: "sleeper"})
		require.NoError(t, err)
		require.Zero(t, run.DeadlineSeconds)
		time.Sleep(50 * time.Minute)
		run, err = s.Session(alice).Run(t.Context(), run.TaskID)
		require.NoError(t, err)
		require.Equal(t, wire.StatusRunning, run.Status)
	})
}
