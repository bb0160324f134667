//go:build unix && !linux

package rootfs

import "errors"

// mknodNull does nothing: device numbers differ from system to system.
func mknodNull(string) error { return errors.ErrUnsupported }
