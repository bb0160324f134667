package postgres

import (
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/pglocal"
	"github.com/toolhost/toolhost/internal/pgtest"
	"github.com/toolhost/toolhost/pkg/background/engine"
)

// A commit that no synchronous standby has confirmed is not acknowledged: not while the server
// waits for one, and not when an operator ends the wait.
func TestUnconfirmedCommit(t *testing.T) {
	fulltest.Only(t, "starts PostgreSQL")
	primary, err := pglocal.Start("fsync=off")
	pgtest.Need(t, err)
	t.Cleanup(primary.Stop)
	e, hasty := open(t, primary.URL, Options{Poll: -1}), open(t, primary.URL, Options{Poll: -1, timeout: 200 * time.Millisecond})
	w, err := e.Join(t.Context(), engine.WorkerInfo{TTL: time.Hour})
	require.NoError(t, err)
	l, err := w.Adopt(t.Context(), run("bg_running", "s"), engine.Permits{})
	require.NoError(t, err)
	operator := open(t, primary.URL, Options{Poll: -1})
	set := func(standbys string) {
		_, err := operator.pool.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '"+standbys+"'")
		require.NoError(t, err)
		_, err = operator.pool.Exec(t.Context(), "SELECT pg_reload_conf()")
		require.NoError(t, err)
	}

	set("nobody")
	require.Eventually(t, func() bool { // once it is in force
		_, err := hasty.Join(t.Context(), engine.WorkerInfo{})
		return errors.Is(err, engine.ErrUnavailable)
	}, time.Minute, time.Millisecond)
	for _, write := range []struct {
		name string
		do   func() error
	}{
		{"submit", func() error { return w.Submit(t.Context(), run("bg_a", "s"), nil) }},
		{"append", func() error { return l.Append(t.Context(), 0, []byte("line")) }},
		{"complete", func() error { // last, since it ends the lease
			_, err := l.Complete(t.Context(), engine.StatusSucceeded, engine.Beat{}, engine.End{})
			return err
		}},
	} {
		ended := make(chan error, 1)
		go func() { ended <- write.do() }()
		var refused error
		for refused == nil { // what hasty left behind may be canceled before this write waits
			_, err := operator.pool.Exec(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			require.NoError(t, err)
			select {
			case refused = <-ended:
				require.Error(t, refused, write.name)
			case <-time.After(time.Millisecond):
			}
		}
		require.ErrorIs(t, refused, engine.ErrUnavailable, write.name)
	}

	set("")
	require.Eventually(t, func() bool { return w.Submit(t.Context(), run("bg_b", "s"), nil) == nil }, time.Minute, time.Millisecond)
}

// A server that takes requests and does not answer, such as one whose disk hangs, is given up,
// and the standby that has been promoted is asked.
func TestSilentServer(t *testing.T) {
	url := pgtest.Schema(t)
	silent := newGate(t, url)
	e := open(t, pglocal.With(pglocal.With(silent.url(url), "pool_max_conns", "2"), "connect_timeout", "1"), Options{Poll: -1, timeout: 200 * time.Millisecond})
	w, err := e.Join(t.Context(), engine.WorkerInfo{TTL: 600 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, w.Submit(t.Context(), run("bg_a", "s"), nil))

	silent.shut()
	_, err = w.Renew(t.Context(), nil)
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.ErrorIs(t, w.Submit(t.Context(), run("bg_b", "s"), nil), engine.ErrUnavailable)

	silent.open()
	_, err = e.Join(t.Context(), engine.WorkerInfo{})
	require.NoError(t, err)
	_, err = e.Get(t.Context(), "bg_a")
	require.NoError(t, err)
}

// A gate passes connections on to a server, until it is shut: then it takes what clients
// send, and nothing comes back.
type gate struct {
	listener net.Listener
	mu       sync.Mutex
	shutting chan struct{} // closed while it is shut
	all      sync.WaitGroup
}

func newGate(t *testing.T, address string) *gate {
	u, err := url.Parse(address)
	require.NoError(t, err)
	network, to := "tcp", u.Host
	if folder := u.Query().Get("host"); folder != "" {
		network, to = "unix", filepath.Join(folder, ".s.PGSQL.5432")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{listener: listener, shutting: make(chan struct{})}
	g.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			g.all.Go(func() { g.pass(t, client, network, to) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		g.all.Wait()
	})
	return g
}

// pass passes a connection on. While the gate is shut, no more answers arrive on a connection
// that is open.
func (g *gate) pass(t *testing.T, client net.Conn, network, to string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial(network, to)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = server.Close() }()
	g.mu.Lock()
	shut := g.shutting
	g.mu.Unlock()

	g.all.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	answer := make([]byte, 4096)
	for {
		n, err := server.Read(answer)
		if err != nil {
			return
		}
		select {
		case <-shut:
			continue
		default:
		}
		if _, err := client.Write(answer[:n]); err != nil {
			return
		}
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shutting)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shutting = make(chan struct{})
}

// url returns the address of the database through the gate.
func (g *gate) url(address string) string {
	return pglocal.With(pglocal.With(address, "host", "127.0.0.1"), "port", g.listener.Addr().String()[len("127.0.0.1:"):])
}
