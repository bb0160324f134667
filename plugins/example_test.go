package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/plugins"
)

// folder stands for plugins.Dir("plugins"), a folder of plugin files.
var folder = plugins.Folder{Path: "plugins", FS: fstest.MapFS{
	"broken.wasm": {Data: []byte("This is no module.")},
	"echo.wasm":   {Data: plugintest.Plugin{Manifest: plugintest.Manifest("echo"), Invoke: plugintest.Do().Echo()}.Wasm()},
}}

// What can be loaded has tools, and all else says why it cannot.
func ExampleOpen() {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{})
	if err != nil {
		log.Fatal(err)
	}

	defer h.Close(ctx)
	registry, err := plugins.Open(ctx, h, plugins.Config{Folders: []plugins.Folder{folder}})
	if err != nil {
		log.Fatal(err)
	}

	defer registry.Close(ctx)
	for _, p := range registry.Problems() {
		fmt.Println(p)
	}
	tool, err := registry.Lookup("echo")
	if err != nil {
		log.Fatal(err)
	}

	result, err := tool.Call(ctx, host.Call{Args: json.RawMessage(`{"text":"hello"}`)})
	fmt.Println(result.Kind, string(result.Value), err)
	_, err = registry.Lookup("ecko")
	fmt.Println(err)
	// Output:
	// plugins/broken.wasm: module: malformed wasm: this is a text file, not a WebAssembly binary
	// success {"text":"hello"} <nil>
	// no such tool: "ecko", did you mean "echo"?
}
