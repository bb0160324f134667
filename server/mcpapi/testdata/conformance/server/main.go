// Command server serves a folder of plugins over streamable HTTP for the
// official conformance suite, in the same way as toolhost serve does. In
// addition to the tools of the plugins, it has features that the suite expects
// and toolhost serve does not offer: prompts, resources, completion, logging,
// and tools that sample or read roots.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/mcpapi"
)

var (
	folder = flag.String("plugins", "", "folder of the plugins")
	data   = flag.String("data", "", "folder to keep runs in")
	cache  = flag.String("cache", "", "folder for compiled plugins")
	listen = flag.String("listen", "127.0.0.1:0", "address to listen on")
)

// names are the plugins of the suite.
var names = []string{"test", "greet", "slow", "failing", "protocol", "confirm", "multi", "header"}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	grants := map[string]plugins.Grant{}
	for _, name := range names {
		grants[name] = plugins.Grant{Clock: true, Ask: true}
	}
	s, err := server.Open(ctx, server.Config{
		Folders: []plugins.Folder{plugins.Dir(*folder)}, Grants: grants, CacheDir: *cache, DataDir: *data, Logger: log,
	})
	if err != nil {
		return err
	}
	for _, p := range s.Problems() {
		err = errors.Join(err, errors.New(p.String()))
	}
	if err != nil || len(s.Plugins()) != len(names) {
		return errors.Join(err, fmt.Errorf("found %d plugins, expected %d", len(s.Plugins()), len(names)))
	}
	if err := s.Compile(ctx, nil); err != nil { // the suite gives a first call no time for that
		return err
	}
	f := &features{}
	// The suite's tools work for some seconds, and it expects tasks of them, but not
	// before the one of them that asks first has done so.
	mcp, err := mcpapi.NewHandler(s, mcpapi.Config{
		Version: "conformance", Grace: time.Second, Logger: log,
		Extend: mcpapi.Extend{Options: f.options, Server: f.add},
	})
	if err != nil {
		return err
	}
	api := httpapi.New(s, httpapi.Config{Version: "conformance", MCP: mcp, Logger: log})
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- api.Serve(l) }()
	fmt.Printf("http://%s/mcp\n", l.Addr())
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	mcp.Close()
	return errors.Join(api.Shutdown(ending), <-served, s.Close(ending))
}
