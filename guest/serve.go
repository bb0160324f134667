//go:build !wasip1

package guest

// Serve makes p the plugin of this module. Call it once, in an init function.
// On platforms other than wasip1 it does nothing.
func Serve(*Plugin) {}

func setRunning(*Call) (done func()) { return func() {} }

// Running returns the call that is running in this module, for packages that cannot get
// it as an argument. It returns nil outside of a handler, and on platforms other than
// wasip1, where several calls can run concurrently.
func Running() *Call { return nil }
