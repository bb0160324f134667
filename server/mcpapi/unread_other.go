//go:build !unix

package mcpapi

import "io"

// unread is not known here before something is written.
func unread(io.Writer) bool { return false }
