// Package mcpapi serves a [server.Service] over the Model Context Protocol:
// newline-delimited JSON-RPC on a pair of streams, in every protocol revision
// the official Go SDK speaks, both those that begin with initialize and
// 2026-07-28, which has no handshake. One process is one session, and its
// background runs belong to that session.
//
// What a tool answers goes out whole, whatever part of a result a client shows
// its model: see toResult. What went wrong with a tool is a result too, so
// that the model can react; only a tool that does not exist is a protocol
// error.
package mcpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// serverName is what clients are told they talk to.
const serverName = "toolhost"

// stopGrace is how long Run waits, once it has to end, for calls to give way
// and for a client that does not read what it is sent.
const stopGrace = 5 * time.Second

// ErrStuck is why Run gave up on a clean end: something still runs, most often
// a write to a client that does not read.
var ErrStuck = errors.New("the MCP session does not end")

// Config configures [Run]. Its zero value serves the process's own streams.
type Config struct {
	Version string // of the program, told to clients

	// In and Out are the streams: nil is the standard input and output. Nothing
	// else may write to Out. If In is an io.Closer it is closed in the end, so
	// that a read that still waits returns.
	In  io.Reader
	Out io.Writer

	// Logger gets what operators should know. Nil discards. It must not write
	// to Out.
	Logger *slog.Logger

	drain time.Duration // 0 is drainGrace, negative none: a guest that spins holds up the clock of a test
}

// Run serves one session until the client closes In or goes away, and returns
// nil, or until ctx is done, and returns its cause. Calls made before In was
// closed have a second to be answered. By its return it has canceled the calls
// that were still running and waited for them. It returns an error that matches
// [ErrStuck] if they do not end within five seconds. The calls of the session
// that were parked it has stopped, as [server.Service.EndSession] does: nobody
// can ask for them any more. Other background runs go on: closing the service
// ends them.
//
// A program that serves its standard output should ignore SIGPIPE, or the
// system ends it when the client goes away.
func Run(ctx context.Context, service *server.Service, cfg Config) error {
	if cfg.In == nil {
		cfg.In = os.Stdin
	}
	if cfg.Out == nil {
		cfg.Out = os.Stdout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	s := &session{ctx: ctx, id: "mcp_" + id.String(), service: service, log: cfg.Logger}
	pipe := newPipe(cfg.In, cfg.Out, cmp.Or(cfg.drain, drainGrace))
	transport := &mcp.IOTransport{Reader: pipe, Writer: pipe.writer(), MaxLineLength: -1} // the pipe bounds them
	conn, err := s.newServer(cfg.Version).Connect(ctx, transport, nil)
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}
	err = serve(ctx, conn, pipe.ended)
	if ended := service.EndSession(context.WithoutCancel(ctx), s.id); ended != nil {
		s.log.Error("the parked calls of the session are not stopped", "error", ended)
	}
	return err
}

// serve waits for the end of a session, and brings it about when ctx is done.
func serve(ctx context.Context, conn *mcp.ServerSession, inputEnded <-chan struct{}) error {
	var waiting sync.WaitGroup
	ended := make(chan error, 1)
	waiting.Go(func() { ended <- conn.Wait() })
	select {
	case err := <-ended:
		waiting.Wait()
		return sessionError(ctx, err)
	case <-inputEnded: // the SDK cancels the calls
	case <-ctx.Done(): // every call sees it, see session.call
		waiting.Go(func() { _ = conn.Close() })
	}
	stuck := time.NewTimer(stopGrace)
	defer stuck.Stop()
	select {
	case err := <-ended:
		waiting.Wait()
		return sessionError(ctx, err)
	case <-stuck.C:
		return fmt.Errorf("%w: a call or a write is still running after %s", ErrStuck, stopGrace)
	}
}

// sessionError tells why a session ended. That the client went away is how
// sessions end.
func sessionError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		return nil
	}
	return fmt.Errorf("MCP session: %w", err)
}

// session is what the calls of one client share.
type session struct {
	ctx     context.Context // ends all calls
	id      string
	service *server.Service
	log     *slog.Logger
}

func (s *session) newServer(version string) *mcp.Server {
	definitions := s.service.Definitions(s.id)
	srv := mcp.NewServer(&mcp.Implementation{Name: serverName, Title: "Toolhost", Version: version}, &mcp.ServerOptions{
		Instructions: instructions(definitions),
		Logger:       s.log,
		// Without this the SDK advertises logging, which 2026-07-28 deprecates,
		// and changes of a list that does not change.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	var served []string
	for _, d := range definitions {
		tool, err := toTool(d)
		if err != nil {
			s.log.Error("the tool is not served over MCP", "tool", d.Name, "plugin", d.Plugin, "error", err)
			continue
		}
		srv.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.call(ctx, req, tool.OutputSchema != nil), nil
		})
		served = append(served, d.Name)
	}
	srv.AddReceivingMiddleware(refuseUnknown(served))
	return srv
}

// refuseUnknown answers calls of tools that are not served as the SDK does, and
// says what may have been meant.
func refuseUnknown(served []string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok || slices.Contains(served, call.Params.Name) {
				return next(ctx, method, req)
			}
			message := fmt.Sprintf("unknown tool %q", call.Params.Name)
			if near := abi.Nearest(call.Params.Name, served); near != "" {
				message += fmt.Sprintf(", did you mean %q?", near)
			}
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message}
		}
	}
}

// maxNamed bounds how many tools the instructions name: they are part of every
// conversation.
const maxNamed = 20

// instructions tell a model what no single tool's description can: that long
// tools run in the background, which ones, and how.
func instructions(definitions []server.Definition) string {
	var names []string
	for _, d := range definitions {
		if d.SupportsBackground {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "and others")
	}
	return fmt.Sprintf("Long work runs in the background: %s takes a tool's name and arguments and returns a task_id at once; go on with other work, "+
		"then %s waits for the end and returns status, progress, new output and the result; %s ends it. Tools that can be spawned: %s.",
		server.SpawnBackground, server.CheckBackground, server.StopBackground, strings.Join(names, ", "))
}
