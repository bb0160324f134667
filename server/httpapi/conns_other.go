//go:build !unix

package httpapi

// openFiles returns 0: this system has no such limit.
func openFiles() uint64 { return 0 }
