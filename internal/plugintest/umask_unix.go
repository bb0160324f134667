//go:build unix

package plugintest

import "syscall"

// Tests make folders of plugins, and the host refuses those that a group can
// write to, as they would be with the umask of some systems.
func init() { syscall.Umask(0o022) }
