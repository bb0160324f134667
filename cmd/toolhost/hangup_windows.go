package main

import "os"

// hangup are the signals that ask for the plugins to be reloaded. Windows has
// none for that.
var hangup []os.Signal
