package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing/fstest"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// folder stands for plugins.Dir("plugins"), a folder of plugin files.
func folder() plugins.Folder {
	return plugins.Folder{Path: "plugins", FS: fstest.MapFS{"echo.wasm": {Data: zoo()["echo"].Wasm()}}}
}

// A server for the programs on this machine, and how to shut it down.
func Example() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder()}})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Config{Version: "1.0"})
	served := make(chan error, 1)
	go func() { served <- api.Serve(l) }()

	resp, err := http.Post("http://"+l.Addr().String()+"/v1/calls", "application/json", strings.NewReader(`{"tool":"echo","args":{"n":1}}`))
	if err != nil {
		log.Fatal(err)
	}
	var result abi.Result
	err = json.NewDecoder(resp.Body).Decode(&result)
	fmt.Println(resp.StatusCode, result.Kind, string(result.Value), err)
	_ = resp.Body.Close()

	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for what runs
	defer cancel()
	api.Drain()
	fmt.Println(service.Close(ctx), api.Shutdown(ctx), <-served)

	// Output:
	// 200 success {"n":1} <nil>
	// <nil> <nil> <nil>
}

// In the program's own server, with MCP next to it, for anyone with a token.
func ExampleAPI_ServeHTTP() {
	ctx := context.Background()
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder()}})
	if err != nil {
		log.Fatal(err)
	}
	mcp, err := mcpapi.NewHandler(service, mcpapi.Config{Version: "1.0"})
	if err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Config{Version: "1.0", Token: "a long random token", MCP: mcp})
	mux := http.NewServeMux() // next to what the program serves itself
	mux.Handle("/v1/", api)
	mux.Handle("/mcp", api)
	own := httptest.NewTLSServer(mux) // stands for an http.Server with ReadHeaderTimeout and the like

	for _, token := range []string{"", "a long random token"} {
		req, err := http.NewRequest(http.MethodGet, own.URL+"/v1/tools/echo", nil)
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := own.Client().Do(req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.Status)
		_ = resp.Body.Close()
	}

	api.Drain()
	fmt.Println(service.Close(ctx), api.Shutdown(ctx))
	mcp.Close()
	own.Close()

	// Output:
	// 401 Unauthorized
	// 200 OK
	// <nil> <nil>
}
