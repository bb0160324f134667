//go:build !unix

package mcpapi

import "io"

// unread always returns false: on this system it is not known before a write.
func unread(io.Writer) bool { return false }
