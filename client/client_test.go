package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/wire"
)

// start starts a server with the tool echo, and returns its handler.
func start() (http.Handler, func()) {
	manifest := plugintest.Manifest("echo")
	manifest.Tools[0].Hints.SupportsBackground = true
	echo := plugintest.Plugin{Manifest: manifest, Invoke: plugintest.Do().Say(abi.StreamOutput, "echoing\n").Echo()}

	service, err := server.Open(context.Background(), server.Config{
		Folders:  []plugins.Folder{{Path: "plugins", FS: fstest.MapFS{"echo.wasm": {Data: echo.Wasm()}}}},
		CacheDir: plugintest.CacheDir(),
	})
	if err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Config{})
	return api, func() {
		api.Drain()
		_ = service.Close(context.Background())
		_ = api.Shutdown(context.Background())
	}
}

func Example() {
	ctx := context.Background()
	api, stop := start() // stands for toolhost serve --listen 127.0.0.1:7070
	defer stop()
	s := httptest.NewServer(api)
	defer s.Close()

	c, err := client.New(s.URL, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	result, err := c.Call(ctx, wire.Call{Tool: "echo", Args: json.RawMessage(`{"n":1}`)})
	fmt.Println(result.Kind, string(result.Value), err)

	run, err := c.Spawn(ctx, wire.Spawn{Tool: "echo", Args: json.RawMessage(`{"n":2}`)}, "my key")
	if err != nil {
		log.Fatal(err)
	}
	run, err = c.Follow(ctx, run.TaskID, client.Follower{
		Output: func(out wire.Output) { fmt.Print(out.Text) },
	})
	fmt.Println(run.Status, string(run.Result), err)

	_, err = c.Call(ctx, wire.Call{Tool: "ecko"})
	if p, ok := err.(*wire.Problem); ok {
		fmt.Println(p.Code)
	}

	// Output:
	// success {"n":1} <nil>
	// echoing
	// succeeded {"n":2} <nil>
	// not_found
}

// Each method reaches its endpoint, over a socket.
func TestClient(t *testing.T) {
	api, stop := start()
	defer stop()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	go func() { _ = api.(*httpapi.API).Serve(l) }()

	ctx := t.Context()
	c, err := client.New(path, client.Options{Session: "ana"})
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, path, c.Address())

	tools, err := c.Tools(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, tools)
	all, err := c.AllTools(ctx)
	require.NoError(t, err)
	require.Equal(t, tools, all, "nothing is deferred")
	found, err := c.Declarations(ctx, "echo & a+b", 1)
	require.NoError(t, err)
	require.Equal(t, wire.Declarations{Tools: []wire.Declaration{{Name: "echo", Declaration: "echo(args?: Record<string, unknown>): Promise<unknown>", Description: "Made for a test."}}}, found)

	happened := make(chan wire.EventKind, 100)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	listening := make(chan bool)
	go func() {
		close(listening)
		for e, err := range c.Events(watching) {
			if err == nil {
				happened <- e.Kind
			}
		}
		close(happened)
	}()
	<-listening

	spawned, err := c.Spawn(ctx, wire.Spawn{Tool: "echo"}, "")
	require.NoError(t, err)
	require.Equal(t, "ana", spawned.Session)
	id := spawned.TaskID
	checked, err := c.Check(ctx, []string{id}, client.CheckOptions{Wait: time.Minute, All: true, Tail: 100})
	require.NoError(t, err)
	require.True(t, checked.Runs[0].Done)
	require.Contains(t, checked.Runs[0].Output.Text, "echoing")

	listed, err := c.Runs(ctx, client.RunQuery{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, id, listed.Runs[0].TaskID)
	run, err := c.Run(ctx, id)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(run.Result))
	stopped, err := c.Stop(ctx, id, wire.Stop{Force: true})
	require.NoError(t, err)
	require.True(t, stopped.AlreadyFinished)

	for _, open := range []func() (io.ReadCloser, error){
		func() (io.ReadCloser, error) { return c.Output(ctx, id) },
		func() (io.ReadCloser, error) { return c.Artifact(ctx, id, wire.OutputLog) },
	} {
		r, err := open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "echoing\n", string(data))
	}

	var p *wire.Problem
	require.ErrorAs(t, c.Answer(ctx, id, nil), &p)
	require.Equal(t, "answers", p.Field)
	notices, err := c.Notices(ctx, 10)
	require.NoError(t, err)
	require.Len(t, notices.Notices, 1)
	require.NoError(t, c.Acknowledge(ctx, id))

	s, err := c.Schedules().Create(ctx, wire.NewSchedule{Spawn: wire.Spawn{Tool: "echo"}, Cron: "0 9 * * *"})
	require.NoError(t, err)
	fired, err := c.Schedules().Fire(ctx, s.ScheduleID)
	require.NoError(t, err)
	require.Equal(t, s.ScheduleID, fired.ScheduleID)
	repeated, err := c.Rerun(ctx, id)
	require.NoError(t, err)
	require.NotEqual(t, id, repeated.TaskID)
	_, err = c.Schedules().Disable(ctx, s.ScheduleID)
	require.NoError(t, err)
	schedules, err := c.Schedules().List(ctx, true)
	require.NoError(t, err)
	require.Empty(t, schedules)
	s, err = c.Schedules().Enable(ctx, s.ScheduleID)
	require.NoError(t, err)
	require.True(t, s.Enabled)
	removed, err := c.Schedules().Remove(ctx, s.ScheduleID)
	require.NoError(t, err)
	require.Equal(t, s.ScheduleID, removed.ScheduleID)
	_, err = c.Schedules().Remove(ctx, s.ScheduleID)
	require.ErrorAs(t, err, &p)
	require.Equal(t, wire.CodeNotFound, p.Code)

	session, err := c.Session(ctx)
	require.NoError(t, err)
	require.Equal(t, "ana", session.Session)
	require.NoError(t, c.EndSession(ctx))
	cancel()
	for range happened { // it ends with its context
	}
}

// An address is host:port, a URL or the path of a socket.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:7070":        "127.0.0.1:7070",
		"http://localhost:7070": "localhost:7070",
		"https://tools.example": "tools.example",
		"[fe80::1%25eth0]:7070": "[fe80::1%eth0]:7070",
		"/run/toolhost.sock":    "/run/toolhost.sock",
		"unix:/run/x.sock":      "/run/x.sock",
		"unix:///run/x.sock":    "/run/x.sock",
		"./x.sock":              "./x.sock",
	} {
		var sent string
		c, err := client.New(address, client.Options{Token: "s3cret", Transport: transport(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			return nil, io.ErrUnexpectedEOF
		})})
		require.NoError(t, err, address)
		require.Equal(t, want, c.Address(), address)

		var lost *client.Unreachable
		require.ErrorAs(t, c.EndSession(t.Context()), &lost)
		require.Equal(t, strings.Contains(want, ".sock"), sent == "", "a socket is not sent the token")
	}

	var invalid *client.AddressError
	for _, address := range []string{"", "ftp://x", "http://", "http://x/path", "http://x?y", "http://x y"} {
		_, err := client.New(address, client.Options{})
		require.ErrorAs(t, err, &invalid, address)
	}
}

type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The error names an address that is not a Toolhost server, and redirects are not
// followed: the token is for one server.
func TestOtherServers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NotEqual(t, "/elsewhere", r.URL.Path)
		if r.Method == http.MethodDelete {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	c, err := client.New(s.URL, client.Options{Token: "s3cret"})
	require.NoError(t, err)

	var wrong *client.AddressError
	_, err = c.Tools(t.Context())
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "is not a Toolhost server: unexpected response 404 Not Found")
	require.ErrorAs(t, c.EndSession(t.Context()), &wrong)
	require.ErrorContains(t, wrong, "redirects to /elsewhere")

	s.Close()
	_, err = c.Tools(t.Context())
	require.ErrorContains(t, err, "no server at 127.0.0.1:")
}
