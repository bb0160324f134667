// Command toolhost runs the tools of AI agents as sandboxed WebAssembly
// plugins. It is the only place that knows flags, files, signals and exit
// codes; what it does is in the packages below it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // schedules name time zones, and a small container knows none

	"github.com/toolhost/toolhost/host"
)

func main() {
	host.CompilerMain()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
