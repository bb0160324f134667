package httpapi_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing/fstest"

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/httpapi"
	"github.com/toolhost/toolhost/server/mcpapi"
)

// Both APIs beside what a program serves itself.
func ExampleNew() {
	ctx := context.Background()
	file := plugintest.Plugin{Manifest: plugintest.Manifest("echo"), Invoke: plugintest.Do().Echo()}.Wasm()
	folder := plugins.Folder{Path: "plugins", FS: fstest.MapFS{"echo.wasm": {Data: file}}} // or plugins.Dir("plugins")
	service, err := server.Open(ctx, server.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}
	mcp, err := mcpapi.NewHandler(service, mcpapi.HTTPConfig{Session: httpapi.SessionOf, Until: httpapi.UntilOf})
	if err != nil {
		log.Fatal(err)
	}
	api := httpapi.New(service, httpapi.Config{MCP: mcp})

	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.Handle("/mcp", api)
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	web := httptest.NewServer(mux) // stands for an http.Server of your own

	body := strings.NewReader(`{"tool":"echo","args":{"text":"hello"}}`)
	response, err := http.Post(web.URL+"/v1/calls", "application/json", body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.Status)
	response.Body.Close()

	api.Drain()        // takes nothing new
	service.Close(ctx) // waits for what runs as long as ctx says
	api.Shutdown(ctx)  // ends what is waited for and followed
	mcp.Close()
	web.Close()
	// Output: 200 OK
}
