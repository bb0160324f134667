package host_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/toolhost/toolhost/host"
)

// A plugin is compiled once and called any number of times, each call in a
// clean instance and under limits of its own.
func ExampleHost_Call() {
	ctx := context.Background()
	h, err := host.New(ctx, host.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(ctx)
	module, err := h.Compile(ctx, echo.wasm()) // most often from os.ReadFile
	if err != nil {
		log.Fatal(err)
	}
	result, err := h.Call(ctx, module, host.Call{
		Traits: host.Traits{Plugin: "echo"}, Tool: "echo", Args: []byte(`{"text": "hello"}`),
		Policy: host.Policy{Fuel: 1_000_000, Memory: 1 << 20, Timeout: 5 * time.Minute},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Kind, string(result.Value))

	result, err = h.Call(ctx, module, host.Call{Traits: host.Traits{Plugin: "echo"}, Tool: "echo", Policy: host.Policy{Fuel: 100}})
	fmt.Println(result.Kind, result.Limit, errors.Is(err, host.ErrFuel))
	fmt.Println(err)
	// Output:
	// success {"text":"hello"}
	// limit fuel true
	// echo: out of fuel after 100 units
}
