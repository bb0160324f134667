//go:build !unix

package mcpapi

import "io"

// unread always returns false: on this system, only a write shows whether anybody reads.
func unread(io.Writer) bool { return false }
