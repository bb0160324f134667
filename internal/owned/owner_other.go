//go:build !unix

package owned

import "io/fs"

// ownerOf returns the user that a file belongs to, which is unknown on this
// system.
func ownerOf(fs.FileInfo) (int, bool) { return 0, false }

// Give does nothing on this system.
func Give(string, fs.FileInfo) error { return nil }

// SameVolume reports false, because the volume is unknown on this system.
func SameVolume(_, _ fs.FileInfo) bool { return false }
