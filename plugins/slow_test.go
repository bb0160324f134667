package plugins

import (
	"errors"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host"
)

// A caller is told that it waits for a compilation, if it waits long; one of a compiled
// plugin is told nothing.
func TestSlowCompilationIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		err   error
		want  []string
	}{
		"fast":             {takes: noticeable / 2},
		"slow":             {takes: 10 * time.Second, want: []string{"compiling a", "running"}},
		"slow, and failed": {takes: 10 * time.Second, err: errors.New("the disk is full"), want: []string{"compiling a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				files := fstest.MapFS{"a.wasm": {Data: sealed(named("a")), Mode: 0o644}}
				r := openWith(t, newHost(t), Config{Folders: []Folder{{Path: "plugins", FS: files}}})
				tool := r.Tools()[0]
				require.NoError(t, tool.Plugin.Compile(t.Context()))
				module := tool.Plugin.module

				c := &compilation{done: make(chan struct{}), cancel: func(error) {}}
				tool.Plugin.module, tool.Plugin.compiling = nil, c
				go func() {
					time.Sleep(test.takes)
					tool.Plugin.mu.Lock()
					defer tool.Plugin.mu.Unlock()
					tool.Plugin.compiling = nil
					if c.err = test.err; c.err == nil {
						c.module, tool.Plugin.module, tool.Plugin.users = module, module, 1
					}
					close(c.done)
				}()

				var statuses []string
				report := func(p host.Progress) { statuses = append(statuses, p.Status) }
				result, err := tool.Call(t.Context(), host.Call{Observers: host.Observers{Progress: report}})
				require.Equal(t, test.err == nil, err == nil, err)
				require.Equal(t, test.want, statuses)
				if err == nil {
					require.GreaterOrEqual(t, result.Usage.Wait, test.takes, "the call has waited for it")
					require.GreaterOrEqual(t, result.Usage.Wall, result.Usage.Wait)
				}

				statuses, tool.Plugin.module = nil, module
				_, err = tool.Call(t.Context(), host.Call{Observers: host.Observers{Progress: report}})
				require.NoError(t, err)
				require.Empty(t, statuses, "it is compiled")
			})
		})
	}
}
