//go:build unix

package plugintest

import "syscall"

// init sets the umask for tests that create folders of plugins. The umask of
// some systems would make these writable for a group, and then the host would
// refuse them.
func init() { syscall.Umask(0o022) }
