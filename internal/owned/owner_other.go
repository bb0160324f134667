//go:build !unix

package owned

import "io/fs"

// ownerOf is the user a file belongs to. Here that is unknown.
func ownerOf(fs.FileInfo) (int, bool) { return 0, false }
