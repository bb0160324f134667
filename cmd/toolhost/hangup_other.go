//go:build !windows

package main

import (
	"os"
	"syscall"
)

// hangup are the signals that ask for the plugins to be reloaded.
var hangup = []os.Signal{syscall.SIGHUP}
