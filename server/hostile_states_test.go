package server

import (
	"bytes"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/server/wire"
)

// waitingScripts are runs that wait, in a data folder whose service is closed. Each returns
// its own name once it continues. It is called in a bubble.
func waitingScripts(t *testing.T, cfg Config, names ...string) map[string]string {
	t.Helper()
	s := openScripts(t, cfg)
	ids := map[string]string{}
	for _, name := range names {
		ids[name] = s.spawnScript(fmt.Sprintf(`console.log("before"); await sleep(1500); return %q`, name))
	}

	time.Sleep(time.Second) // longer than runs.SuspendAfter
	synctest.Wait()
	for _, id := range ids {
		require.Equal(t, wire.StatusWaiting, s.run(id).Status)
	}
	require.NoError(t, s.Close(done()))
	return ids
}

// TestHostileStates: who can write to the data folder can end the runs that wait, and no
// more. Each says why, and the others continue.
func TestHostileStates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cut := func(data []byte, n int) []byte { return data[:len(data)-n] }
		changed := func(data []byte, at int) []byte {
			data = bytes.Clone(data)
			data[at] ^= 0x20
			return data
		}
		cases := []struct {
			name   string
			change func(own, other []byte) []byte
			reason string
		}{
			{"good", func(own, _ []byte) []byte { return own }, ""},
			{"cut", func(own, _ []byte) []byte { return cut(own, 1) }, "damaged"},
			{"half", func(own, _ []byte) []byte { return cut(own, len(own)/2) }, "damaged"},
			{"one byte", func(own, _ []byte) []byte { return own[:1] }, "damaged"},
			{"longer", func(own, _ []byte) []byte { return append(bytes.Clone(own), 0) }, "damaged"},
			{"changed at its beginning", func(own, _ []byte) []byte { return changed(own, 1) }, "cannot be continued"},
			{"changed in its header", func(own, _ []byte) []byte { return changed(own, 30) }, "cannot be continued"},
			{"changed in its middle", func(own, _ []byte) []byte { return changed(own, len(own)/2) }, "damaged"},
			{"changed at its end", func(own, _ []byte) []byte { return changed(own, len(own)-1) }, "damaged"},
			{"of another run", func(_, other []byte) []byte { return other }, "its state is that of another call"},
			{"zeros", func(own, _ []byte) []byte { return make([]byte, len(own)) }, "damaged"},
			{"encrypted by an earlier version", func(own, _ []byte) []byte { return append([]byte("\x01key-id.."), own...) }, "another version made it"},
			{"large", func([]byte, []byte) []byte { return bytes.Repeat([]byte("state"), 1<<20) }, "damaged"},
		}
		names := []string{"other"}
		for _, c := range cases {
			names = append(names, c.name)
		}
		cfg := Config{DataDir: t.TempDir(), Runs: RunsConfig{PerSession: 100}}
		ids := waitingScripts(t, cfg, names...)

		db, err := sql.Open("sqlite", filepath.Join(cfg.DataDir, "state.db"))
		require.NoError(t, err)
		state := func(id string) (seq int64, data []byte) {
			require.NoError(t, db.QueryRow(`SELECT states.seq, data FROM states JOIN runs ON runs.seq = states.seq WHERE runs.id = ?`, id).Scan(&seq, &data))
			return seq, data
		}
		_, other := state(ids["other"])
		for _, c := range cases {
			seq, own := state(ids[c.name])
			_, err := db.Exec(`UPDATE states SET data = ? WHERE seq = ?`, c.change(own, other), seq)
			require.NoError(t, err, c.name)
		}
		require.NoError(t, db.Close())

		s := openScripts(t, cfg)
		for _, c := range cases {
			run := s.settled(alice, ids[c.name])
			if c.reason == "" {
				require.Equal(t, engine.StatusSucceeded, run.Status, "%+v", run.Error)
				continue
			}
			require.Equal(t, engine.StatusFailed, run.Status, c.name)
			require.Equal(t, engine.KindOrphaned, run.Error.Kind, "%s: %+v", c.name, run.Error)
			require.Contains(t, run.Error.Message, c.reason, c.name)
		}
		require.Equal(t, `"other"`, string(s.settled(alice, ids["other"]).Result))
		require.NoError(t, s.Close(done()))
	})
}
