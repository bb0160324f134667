//go:build !wasip1

package guest

// Serve makes p the plugin of this module. Call it once, in an init function.
// On other platforms than wasip1 it does nothing.
func Serve(*Plugin) {}
